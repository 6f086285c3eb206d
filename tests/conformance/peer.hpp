// A real second process that makes driver calls when a test asks it to, and dies when a test kills it.
//
// Owns: the process (forked, exec'ed, killed at the latest by the destructor) and one socket to it. Promises:
// every call returns within a deadline or fails the test; a process that died in a call answers kDied; after
// kill() the process is gone and reaped. Never: ends a process it did not start. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "answer.hpp"
#include "peer_protocol.hpp"

namespace apportion::conformance {

// An fd that closes itself.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// One mapped chunk of a helper process, in that process's numbers.
struct PeerChunk {
  std::uint64_t handle = 0;
  std::uint64_t address = 0;
  std::size_t bytes = 0;
};

struct PeerOptions {
  std::vector<std::string> environment = {};  // "NAME=value", added to this process's own
  bool new_pid_namespace = false;
  uid_t uid = 0;  // 0: as the test itself
};

class Peer {
 public:
  using Options = PeerOptions;

  // Starts the helper. Fails the test where it does not start.
  explicit Peer(const Options& options = {});
  Peer(Peer&&) noexcept;
  Peer& operator=(Peer&&) = delete;
  ~Peer();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // False where the helper could not enter the namespace or uid it was asked to.
  [[nodiscard]] bool usable() const { return usable_; }

  // SIGKILL; returns when the process is gone and reaped.
  void kill();
  // Waits for the process to end by itself and returns waitpid's status.
  int wait();

  // Calls, named as in peer_protocol.hpp. Outputs are unchanged unless the answer is kOk.
  Answer init() { return call(Op::init); }
  Answer context() { return call(Op::context); }
  Answer drop_context() { return call(Op::drop_context); }
  Answer device_count() { return call(Op::device_count); }
  Answer create(std::size_t bytes, std::uint64_t* handle);
  Answer release(std::uint64_t handle) { return call(Op::release, {handle}); }
  Answer reserve(std::size_t bytes, std::uint64_t* address);
  Answer address_free(std::uint64_t address, std::size_t bytes) {
    return call(Op::address_free, {address, bytes});
  }
  Answer map(std::uint64_t address, std::size_t bytes, std::uint64_t handle) {
    return call(Op::map, {address, bytes, handle});
  }
  Answer set_access(std::uint64_t address, std::size_t bytes, CUmemAccess_flags flags) {
    return call(Op::set_access, {address, bytes, static_cast<std::uint64_t>(flags)});
  }
  Answer unmap(std::uint64_t address, std::size_t bytes) { return call(Op::unmap, {address, bytes}); }
  Answer export_fd(std::uint64_t handle, OwnedFd* fd);
  // Sends a copy of `fd`; `number`, when asked for, is its number in the helper, to close later. Without it
  // the helper closes its copy after the import.
  Answer import_fd(const OwnedFd& fd, std::uint64_t* handle, std::uint64_t* number = nullptr);
  Answer import_number(int number, std::uint64_t* handle);
  Answer close_fd(std::uint64_t number) { return call(Op::close_fd, {number}); }
  Answer retain(std::uint64_t address, std::uint64_t* handle);
  Answer mem_info(std::size_t* free_bytes, std::size_t* total_bytes = nullptr);
  Answer mem_alloc(std::size_t bytes, std::uint64_t* address);
  Answer mem_free(std::uint64_t address) { return call(Op::mem_free, {address}); }
  Answer alloc_managed(std::size_t bytes, std::uint64_t* address);
  Answer fill(std::uint64_t address, std::size_t bytes, unsigned char value) {
    return call(Op::fill, {address, bytes, value});
  }
  Answer fill_async(std::uint64_t address, std::size_t bytes, unsigned char value) {
    return call(Op::fill_async, {address, bytes, value});
  }
  Answer query() { return call(Op::query); }
  Answer synchronize() { return call(Op::synchronize); }
  Answer write_word(std::uint64_t address, std::uint64_t value) {
    return call(Op::write_word, {address, value});
  }
  Answer read_word(std::uint64_t address, std::uint64_t* value);
  Answer touch(std::uint64_t address) { return call(Op::touch, {address}); }
  Answer ipc_get(std::uint64_t address, std::string* blob);
  Answer ipc_open(const std::string& blob, std::uint64_t* address,
                  unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  Answer ipc_close(std::uint64_t address) { return call(Op::ipc_close, {address}); }
  // What NVML says of device 0: used bytes; a process's bytes, 0 where it lists none.
  Answer nvml_used(std::size_t* bytes);
  Answer nvml_process(pid_t pid, std::size_t* bytes);
  // Lets the process take and give back memory until it is killed; it answers nothing any more.
  void start_churn(std::uint64_t seed, std::size_t bytes);
  // Any call, for what has no name above.
  Answer call(Op op, std::vector<std::uint64_t> arguments = {}, Reply* reply = nullptr);

  // Composed of the calls above; fail the test where one of them is refused.
  void start();                                                   // init
  void start_context();                                           // init, context
  PeerChunk mapped_chunk(std::size_t bytes);                      // create, reserve, map, set access
  PeerChunk map_handle(std::uint64_t handle, std::size_t bytes);  // reserve, map, set access
  OwnedFd exported(std::uint64_t handle);
  std::uint64_t imported(const OwnedFd& fd);
  std::size_t free_bytes();
  std::uint64_t word(std::uint64_t address);

 private:
  Answer exchange(const Request& request, int send_fd, Reply* reply, OwnedFd* received);

  pid_t pid_ = -1;
  OwnedFd socket_;
  bool usable_ = true;
};

}  // namespace apportion::conformance
