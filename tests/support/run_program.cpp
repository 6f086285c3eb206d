// tests/support/run_program.hpp.
#include "tests/support/run_program.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace apportion::testing {
namespace {

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

Ran run_program(const std::vector<std::string>& command,
                const std::map<std::string, std::string>& variables) {
  int out[2];
  if (::pipe2(out, O_CLOEXEC) != 0) give_up("pipe2");
  std::vector<char*> arguments;
  for (const std::string& word : command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) give_up("fork");
  if (pid == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    for (const auto& [name, value] : variables) {
      if (value.empty())
        ::unsetenv(name.c_str());
      else
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    ::execv(arguments[0], arguments.data());
    std::perror(arguments[0]);
    ::_exit(127);
  }
  ::close(out[1]);
  Ran ran;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(out[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    ran.output.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(out[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) give_up("waitpid");
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

std::string built(const std::string& name) {
  namespace fs = std::filesystem;
  if (const char* folder = std::getenv("APPORTION_BUILD_DIR"); folder != nullptr && *folder != '\0')
    return fs::path(folder) / name;
  for (fs::path folder = fs::read_symlink("/proc/self/exe").parent_path(); folder.has_relative_path();
       folder = folder.parent_path())
    if (fs::exists(folder / name)) return folder / name;
  std::fprintf(stderr, "%s is not built\n", name.c_str());
  std::abort();
}

}  // namespace apportion::testing
