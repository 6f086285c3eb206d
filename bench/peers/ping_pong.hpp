// The floor of a lease round trip: a message there, a message back with one descriptor, over SOCK_SEQPACKET.
//
// Owns: a forked process that answers, and nothing else. Promises: it is gone when the object goes. Two
// blocking system calls a side; nothing is decided, booked or checked. The descriptor is closed on receipt.
#pragma once

#include <sys/types.h>

#include <memory>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion::bench {

class PingPong {
 public:
  static constexpr std::size_t kBytes = 64;  // of either message

  [[nodiscard]] static Result<std::unique_ptr<PingPong>> start();
  ~PingPong();
  PingPong(const PingPong&) = delete;
  PingPong& operator=(const PingPong&) = delete;

  // One round trip. False where the other side has gone or no descriptor came.
  [[nodiscard]] bool exchange() noexcept;

 private:
  PingPong(Fd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  Fd socket_;
  pid_t pid_;
};

}  // namespace apportion::bench
