#include "cli/interrupt.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "shm/result.hpp"

namespace apportion {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};

std::atomic<int> event_fd{-1};
std::atomic<bool> came{false};

void remember(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  came = true;
  // An eventfd is never full by this; nothing could be done here if it were.
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
  errno = saved;
}

}  // namespace

CatchInterrupts::CatchInterrupts() : event_(eventfd(0, EFD_CLOEXEC)) {
  APPORTION_CHECK(event_fd == -1);
  event_fd = event_.get();
  came = false;
  struct sigaction action {};
  action.sa_handler = remember;
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals.at(i), &action, &before_.at(i));
}

CatchInterrupts::~CatchInterrupts() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals.at(i), &before_.at(i), nullptr);
  event_fd = -1;
}

bool interrupted() {
  return event_fd != -1 && came;
}

int interrupt_fd() {
  return event_fd;
}

}  // namespace apportion
