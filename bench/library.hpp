// The library as its users call it: the C API, as replay() drives it.
#pragma once

#include <apportion/apportion.h>

#include <cstdint>
#include <string>

#include "bench/replay.hpp"
#include "shm/result.hpp"

namespace apportion::bench {

class Library {
 public:
  using Handle = void*;  // a device pointer

  // Attaches this process to a job of the broker at `socket`.
  [[nodiscard]] static Result<Library> attach(const std::string& socket, const std::string& job);
  // What it holds goes back to the broker.
  void detach() { apportion_detach(client_); }

  // Maps chunks for `threads` replays of a trace at their peaks at once, in both ranges, and leaves them
  // free, so that no replay needs the driver. Two threads' blocks lie among each other in ever new ways: what
  // one order of them leaves in pieces must not make the arena grow, so each has room for twice its peak.
  // Errors: quota, with the library's words.
  [[nodiscard]] Status make_room(const Replay& trace, unsigned threads);

  // Null where there is no room. Thread-safe, as is free.
  void* allocate(std::uint64_t bytes, std::uint64_t stream) noexcept {
    void* block = nullptr;
    apportion_allocate(client_, bytes, stream_of(stream), 0, &block);
    return block;
  }
  void free(void* block, std::uint64_t stream) noexcept {
    apportion_deallocate(client_, block, stream_of(stream));
  }
  static bool none(void* block) { return block == nullptr; }

  [[nodiscard]] apportion_client* client() const { return client_; }

 private:
  static apportion_stream stream_of(std::uint64_t stream) {
    return reinterpret_cast<apportion_stream>(stream);
  }
  apportion_client* client_ = nullptr;
};

}  // namespace apportion::bench
