#include "cudasim/scratch_folder.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/catch.hpp"

using cudasim::ScratchFolder;

namespace {

// A process that made a scratch folder and waits to be killed; with a forked child of its own, if asked.
class Maker {
 public:
  explicit Maker(bool with_child) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) run(ends[1], with_child);
    ::close(ends[1]);
    char text[128] = {};
    REQUIRE(::read(ends[0], &child_, sizeof child_) == sizeof child_);
    REQUIRE(::read(ends[0], text, sizeof text - 1) > 0);
    ::close(ends[0]);
    path_ = text;
  }
  ~Maker() {
    kill();
    kill_child();
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // This program is its subreaper, so it can wait for it.
  void kill_child() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  [[nodiscard]] bool folder_exists() const { return std::filesystem::exists(path_); }

 private:
  [[noreturn]] static void run(int out, bool with_child) {
    const ScratchFolder folder;
    const pid_t child = with_child ? ::fork() : 0;
    if (with_child && child == 0) {
      for (;;)
        ::pause();
    }
    if (::write(out, &child, sizeof child) < 0) ::_exit(1);
    if (::write(out, folder.path().data(), folder.path().size()) < 0) ::_exit(1);
    for (;;)
      ::pause();
  }

  pid_t pid_ = 0;
  pid_t child_ = 0;
  std::string path_;
};

}  // namespace

TEST_CASE("a scratch folder is removed at its end, and is open to every user until then") {
  std::string path;
  {
    const ScratchFolder folder;
    path = folder.path();
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0777);
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("what a killed test left is removed by the next one, and nothing of a living one is") {
  Maker dead(false);
  Maker alive(false);
  dead.kill();
  REQUIRE(dead.folder_exists());
  const ScratchFolder next;
  CHECK_FALSE(dead.folder_exists());
  CHECK(alive.folder_exists());
}

TEST_CASE("a forked child of a killed test keeps the folder until it ends") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  Maker maker(true);
  maker.kill();
  {
    const ScratchFolder next;
    CHECK(maker.folder_exists());
  }
  maker.kill_child();
  const ScratchFolder next;
  CHECK_FALSE(maker.folder_exists());
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}
