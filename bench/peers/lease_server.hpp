// The peer of the start race: a plain epoll server that leases descriptors, doing the least such a server
// must do.
//
// Over the same kind of socket as the broker's, one thread, level-triggered: accept, ask the kernel who it
// is, HELLO with one descriptor in its answer, a request that is checked against a guarantee and answered
// with a descriptor a chunk, and what a client held is free again when it hangs up. No journal, no ledger, no
// job pages, no acknowledgement, no watching of processes: what the broker does beyond this is what the gate
// measures. Owns: a forked process and its socket's file. Promises: both are gone when the object goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion::bench {

class LeaseServer {
 public:
  // Serves `chunks` at `path`; nobody gets more than `guarantee` of them.
  [[nodiscard]] static Result<std::unique_ptr<LeaseServer>> start(const std::string& path,
                                                                  std::uint32_t chunks,
                                                                  std::uint32_t guarantee);
  ~LeaseServer();
  LeaseServer(const LeaseServer&) = delete;
  LeaseServer& operator=(const LeaseServer&) = delete;

 private:
  LeaseServer(std::string path, pid_t pid) : path_(std::move(path)), pid_(pid) {}
  std::string path_;
  pid_t pid_;
};

// A client of it. The lease ends with the object.
class LeaseClient {
 public:
  // Connects and says HELLO.
  [[nodiscard]] static Result<LeaseClient> open(const std::string& path);
  // The descriptors of `count` chunks, at most 128; fewer than that is none. Errors: quota, disconnected.
  [[nodiscard]] Result<std::vector<Fd>> request(std::uint32_t count);

 private:
  explicit LeaseClient(Fd socket, Fd page) : socket_(std::move(socket)), page_(std::move(page)) {}
  Fd socket_;
  Fd page_;
};

}  // namespace apportion::bench
