// Knows when a client's process is gone: its pidfd says so, whatever its socket does (F05: a forked child may
// keep the socket open; F08: a reused pid is another process, and a pidfd never names it).
//
// Owns: the pidfd. Promises: `gone` is called once, and may destroy the watch. Never: takes silence for
// death.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "broker/server_loop.hpp"
#include "shm/fd.hpp"

namespace apportion {

class ProcessWatch {
 public:
  // `pidfd` may be none (F10: a process of another pid namespace): then `gone` is never called.
  ProcessWatch(Loop& loop, Fd pidfd, std::function<void()> gone)
      : loop_(loop), pidfd_(std::move(pidfd)), gone_(std::move(gone)) {
    if (pidfd_) start();
  }
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

 private:
  void start() {
    watch_ = loop_.on_readable(pidfd_.get(), [this] {
      watch_.reset();  // it stays readable for ever
      const std::function<void()> gone = std::move(gone_);
      gone();
    });
    // F31: out of room now; a death must not be missed for that.
    if (!watch_) watch_ = loop_.after(std::chrono::seconds(1), [this] { start(); });
  }

  Loop& loop_;
  Fd pidfd_;
  std::function<void()> gone_;
  std::unique_ptr<Loop::Watch> watch_;
};

}  // namespace apportion
