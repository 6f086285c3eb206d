#include "child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

Child::Child(const std::vector<std::string>& arguments) {
  int in[2];
  int out[2];
  // Close-on-exec: a later child must not keep this one's input open.
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  std::vector<char*> words{const_cast<char*>("example_service")};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = ::fdopen(in[1], "w");
  from_ = ::fdopen(out[0], "r");
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
}

Child::~Child() {
  end();
}

void Child::say(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
}

bool Child::hear(std::string& line) {
  line.clear();
  for (int c = 0; (c = std::fgetc(from_)) != EOF;) {
    if (c == '\n') return true;
    line += static_cast<char>(c);
  }
  return false;
}

int Child::end() {
  if (pid_ < 0) return status_;
  std::fclose(to_);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  std::fclose(from_);
  pid_ = -1;
  return status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
