// An owned file descriptor.
//
// Promises: closed exactly once, by its last owner; never inherited over exec (whoever makes one sets
// close-on-exec). Never: throws, or retries a close (on Linux the fd is gone whatever close answers).
#pragma once

#include <unistd.h>

#include <utility>

namespace apportion {

class Fd {
 public:
  Fd() = default;
  // Takes `fd` over; a negative number is "none".
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }

  // Gives the number away; the caller closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (const int fd = release(); fd >= 0) ::close(fd);
  }

 private:
  int fd_ = -1;
};

}  // namespace apportion
