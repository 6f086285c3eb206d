#include "libclient/attendant.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace apportion {

namespace {

// Rounded up: a wake-up before the time would find nothing to do.
int milliseconds_until(std::optional<Attendant::Clock::time_point> time) {
  if (!time) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*time - Attendant::Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

}  // namespace

Status Attendant::start() {
  if (running_) return Done{};
  if (!watch_) {
    Fd watch(::epoll_create1(EPOLL_CLOEXEC));
    Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    if (!watch || !wake || ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
      return system_error("cannot watch the broker's socket", errno);
    }
    watch_ = std::move(watch);
    wake_ = std::move(wake);
  }
  stop_ = false;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  const int failed = ::pthread_create(&thread_, nullptr, run, this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) return system_error("cannot start the session's thread", failed);
  running_ = true;
  return Done{};
}

void Attendant::stop() {
  if (!running_) return;
  stop_ = true;
  wake();
  ::pthread_join(thread_, nullptr);
  running_ = false;
}

void Attendant::wake() noexcept {
  const int error = errno;  // a handler's caller has its own
  static_cast<void>(::eventfd_write(wake_.get(), 1));
  errno = error;
}

void Attendant::abandon_in_child() noexcept {
  if (watch_) ::close(watch_.get());
  if (wake_) ::close(wake_.get());
}

void* Attendant::run(void* self) {
  ::pthread_setname_np(::pthread_self(), "apportion");
  static_cast<Attendant*>(self)->loop();
  return nullptr;
}

void Attendant::loop() {
  std::optional<Clock::time_point> next;
  while (!stop_) {
    epoll_event event;  // which one does not matter: the duties look at all
    if (::epoll_wait(watch_.get(), &event, 1, milliseconds_until(next)) < 0 && errno != EINTR) return;
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(wake_.get(), &count));
    if (!stop_) next = duties_.attend();
  }
}

}  // namespace apportion
