// tests/support/process.hpp.
#include "tests/support/process.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "shm/peer.hpp"
#include "tests/support/catch.hpp"

namespace apportion::testing {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

int left(Clock::time_point deadline) {
  return static_cast<int>(
      std::max<milliseconds::rep>(0, duration_cast<milliseconds>(deadline - Clock::now()).count()));
}

// Between fork and exec: only what is safe there.
[[noreturn]] void become(const Launch& launch, char* const* words, int input, int output, int errors) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves nobody behind
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  if (errors >= 0) ::dup2(errors, STDERR_FILENO);
  if (launch.open_files) {
    const rlimit limit{*launch.open_files, *launch.open_files};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::_exit(126);
  }
  if (launch.uid &&
      (::setgroups(0, nullptr) != 0 || ::setgid(*launch.uid) != 0 || ::setuid(*launch.uid) != 0))
    ::_exit(126);
  for (const auto& [name, value] : launch.variables) {
    if (value.empty()) {
      ::unsetenv(name.c_str());
    } else {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (launch.uid) ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of uid clears it
  ::execv(words[0], words);
  std::perror(words[0]);
  ::_exit(127);
}

}  // namespace

Process::Process(const Launch& launch) {
  std::vector<char*> words;
  for (const std::string& word : launch.command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int in[2];
  int out[2];
  REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
  Fd errors;
  if (!launch.errors.empty()) {
    errors = Fd(::open(launch.errors.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    REQUIRE(errors.valid());
  }
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) become(launch, words.data(), in[0], out[1], errors.get());
  ::close(in[0]);
  ::close(out[1]);
  input_ = Fd(in[1]);
  output_ = Fd(out[0]);
  auto pidfd = open_pidfd(pid_);
  REQUIRE(pidfd.ok());
  pidfd_ = *std::move(pidfd);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      status_(other.status_),
      pidfd_(std::move(other.pidfd_)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      buffer_(std::move(other.buffer_)) {}

Process::~Process() {
  if (pid_ > 0) kill();
}

bool Process::say(const std::string& line) {
  const std::string text = line + "\n";
  struct sigaction before {};
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  const bool whole =
      input_ && ::write(input_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::sigaction(SIGPIPE, &before, nullptr);
  return whole;
}

std::optional<std::string> Process::line(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (true) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (!output_) return std::nullopt;
    pollfd ready{output_.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, left(deadline));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return std::nullopt;
    char piece[4096];
    const ssize_t n = ::read(output_.get(), piece, sizeof piece);
    if (n <= 0) return std::nullopt;
    buffer_.append(piece, static_cast<std::size_t>(n));
  }
}

void Process::signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

std::optional<int> Process::reap(bool block) {
  if (status_) return status_;
  int status = 0;
  pid_t reaped = 0;
  do {
    reaped = ::waitpid(pid_, &status, block ? 0 : WNOHANG);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != pid_) return status_;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // Its last lines can still be read; its descriptors are ours no more.
  pollfd ready{output_.get(), POLLIN, 0};
  char piece[4096];
  for (ssize_t n = 0; ::poll(&ready, 1, 0) > 0 && (n = ::read(output_.get(), piece, sizeof piece)) > 0;)
    buffer_.append(piece, static_cast<std::size_t>(n));
  input_.reset();
  output_.reset();
  pidfd_.reset();
  return status_;
}

int Process::wait(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  pollfd gone{pidfd_.get(), POLLIN, 0};
  while (!status_ && pidfd_ && ::poll(&gone, 1, left(deadline)) < 0 && errno == EINTR) {
  }
  const std::optional<int> status = reap(false);
  INFO("process " << pid_ << " did not end in time");
  REQUIRE(status);
  return *status;
}

bool Process::running() {
  return !reap(false);
}

void Process::kill() {
  signal(SIGKILL);
  reap(true);
}

bool eventually(const std::function<bool()>& done, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (!done()) {
    if (Clock::now() >= deadline) return done();
    ::poll(nullptr, 0, 5);
  }
  return true;
}

std::size_t open_fds(pid_t pid) {
  std::error_code gone;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/" + std::to_string(pid) + "/fd", gone), end; at != end;
       at.increment(gone))
    ++count;
  return count;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = text_of(entry.path().string() + "/stat");
    const auto end = stat.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream rest(stat.substr(end + 1));
    char state = 0;
    pid_t parent = 0;
    if (rest >> state >> parent && parent == pid && state != 'Z') children.push_back(std::stoi(name));
  }
  return children;
}

bool exists(pid_t pid) {
  return ::kill(pid, 0) == 0 || errno == EPERM;
}

std::string text_of(const std::string& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int in_child(std::optional<uid_t> uid, const std::function<int()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (uid && (::setgid(*uid) != 0 || ::setuid(*uid) != 0)) ::_exit(101);
    ::_exit(work());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool can_change_uid() {
  return ::geteuid() == 0;
}

namespace {

void bark(int) {
  constexpr char kText[] = "watchdog: a test did not come to its end in time\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::abort();
}

}  // namespace

Watchdog::Watchdog(std::chrono::seconds limit) {
  ::signal(SIGALRM, bark);
  ::alarm(static_cast<unsigned>(limit.count()));
}

Watchdog::~Watchdog() {
  ::alarm(0);
  ::signal(SIGALRM, SIG_DFL);
}

unsigned rounds(unsigned in_ci, unsigned in_full) {
  const char* full = std::getenv("APPORTION_LONG");
  return full != nullptr && *full != '\0' ? in_full : in_ci;
}

unsigned seed() {
  const char* given = std::getenv("APPORTION_SEED");
  const unsigned value = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                                          : static_cast<unsigned>(Clock::now().time_since_epoch().count());
  std::fprintf(stderr, "%s: seed %u (repeat with APPORTION_SEED=%u)\n",
               Catch::getResultCapture().getCurrentTestName().c_str(), value, value);
  return value;
}

}  // namespace apportion::testing
