#include "cli/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli/interrupt.hpp"
#include "shm/peer.hpp"

namespace apportion {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : variables)
    if (!value.empty()) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// True where `fd` became readable before the deadline, and before `or_fd` did (-1: none).
bool wait_readable(int fd, Clock::time_point deadline, int or_fd = -1) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    std::array<pollfd, 2> polled{pollfd{fd, POLLIN, 0}, pollfd{or_fd, POLLIN, 0}};
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(std::max<long long>(left, 0)));
    if (ready > 0) return polled[1].revents == 0;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const std::vector<std::string>& argv,
                                         const std::map<std::string, std::string>& variables,
                                         const std::string& errors) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0) return system_error("pipe", errno);
  const Fd child_input(in[0]);
  Fd our_input(in[1]);
  if (pipe2(out.data(), O_CLOEXEC) != 0) return system_error("pipe", errno);
  Fd our_output(out[0]);
  const Fd child_output(out[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
  if (!errors.empty())
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(), O_WRONLY | O_APPEND | O_CREAT,
                                     0600);
  std::vector<std::string> words = argv;
  std::vector<std::string> environment = environment_with(variables);
  ChildProcess child;
  const int error = posix_spawn(&child.pid_, argv[0].c_str(), &actions, nullptr, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    child.pid_ = -1;
    return Error{Errc::not_found, "cannot start " + argv[0] + ": " + std::strerror(error)};
  }
  child.input_ = std::move(our_input);
  child.output_ = std::move(our_output);
  Result<Fd> pidfd = open_pidfd(child.pid_);
  if (!pidfd.ok()) return pidfd.error();
  child.pidfd_ = *std::move(pidfd);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      buffer_(std::move(other.buffer_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  end();
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::move(other.pidfd_);
  input_ = std::move(other.input_);
  output_ = std::move(other.output_);
  buffer_ = std::move(other.buffer_);
  return *this;
}

ChildProcess::~ChildProcess() {
  end();
}

void ChildProcess::end() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

Status ChildProcess::poke() {
  // A child that died must not take us with it.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const char byte = 1;
  const bool sent = write(input_.get(), &byte, 1) == 1;
  const int saved = errno;
  std::signal(SIGPIPE, before);
  if (sent) return Done{};
  return system_error("process " + std::to_string(pid_) + " does not listen", saved);
}

Result<std::string> ChildProcess::line(Clock::time_point deadline) {
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (!wait_readable(output_.get(), deadline, interrupt_fd()))
      return interrupted()
                 ? Error{Errc::system, "interrupted"}
                 : Error{Errc::timed_out, "process " + std::to_string(pid_) + " said nothing in time"};
    std::array<char, 4096> chunk{};
    const ssize_t got = read(output_.get(), chunk.data(), chunk.size());
    // Ctrl-C goes to all of a terminal's processes: those we started may end before we look.
    if (got <= 0 && interrupted()) return Error{Errc::system, "interrupted"};
    if (got <= 0) return Error{Errc::disconnected, "process " + std::to_string(pid_) + " ended early"};
    buffer_.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

Result<int> ChildProcess::wait(Clock::time_point deadline) {
  if (!wait_readable(pidfd_.get(), deadline))
    return Error{Errc::timed_out, "process " + std::to_string(pid_) + " did not end in time"};
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace apportion
