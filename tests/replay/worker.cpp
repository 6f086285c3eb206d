// tests/replay/worker.hpp.
#include "tests/replay/worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

namespace apportion::replay {
namespace {

constexpr int kDeadlineMs = 60'000;  // a loaded machine; a healthy worker answers in milliseconds

}  // namespace

Worker::Worker(const std::vector<std::string>& arguments,
               const std::map<std::string, std::string>& variables) {
  const std::string program = testing::built("tests/replay/replay_race_worker");
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int gate[2];
  int lines[2];
  REQUIRE(::pipe2(gate, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(lines, O_CLOEXEC) == 0);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(gate[0], STDIN_FILENO);
    ::dup2(lines[1], STDOUT_FILENO);
    for (const auto& [name, value] : variables)
      ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(words[0], words.data());
    std::perror(words[0]);
    ::_exit(127);
  }
  ::close(gate[0]);
  ::close(lines[1]);
  gate_ = Fd(gate[1]);
  lines_ = Fd(lines[0]);
}

Worker::~Worker() {
  gate_.reset();
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Worker::go() {
  REQUIRE(::write(gate_.get(), "g", 1) == 1);
}

nlohmann::json Worker::expect(const std::string& event) {
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      INFO(line);
      auto json = nlohmann::json::parse(line);
      REQUIRE(json["event"] == event);
      return json;
    }
    struct pollfd ready {
      lines_.get(), POLLIN, 0
    };
    REQUIRE(::poll(&ready, 1, kDeadlineMs) > 0);
    char buffer[4096];
    const ssize_t n = ::read(lines_.get(), buffer, sizeof buffer);
    INFO("worker " << pid_ << " ended before its line '" << event << "'");
    REQUIRE(n > 0);
    pending_.append(buffer, static_cast<std::size_t>(n));
  }
}

int Worker::finish() {
  gate_.reset();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0)
    REQUIRE(errno == EINTR);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace apportion::replay
