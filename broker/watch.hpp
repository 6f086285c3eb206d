// Knows when a client's process is gone: its pidfd says so, whatever its socket does (F05: a forked child may
// keep the socket open; F08: a reused pid is another process, and a pidfd never names it).
#pragma once

#include <functional>
#include <memory>

#include "broker/server_loop.hpp"
#include "shm/fd.hpp"

namespace apportion {

class ProcessWatch {
 public:
  // `pidfd` may be none (F10: a process of another pid namespace): then `gone` is never called.
  ProcessWatch(Loop& loop, Fd pidfd, std::function<void()> gone) : pidfd_(std::move(pidfd)) {
    if (pidfd_) {
      watch_ = loop.on_readable(pidfd_.get(), [this, gone = std::move(gone)] {
        watch_.reset();  // it stays readable for ever
        gone();
      });
    }
  }

 private:
  Fd pidfd_;
  std::unique_ptr<Loop::Watch> watch_;
};

}  // namespace apportion
