// What replay() can drive: the library as its users call it, and the peers.
#pragma once

#include <apportion/apportion.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "bench/peers/ref8.hpp"
#include "libclient/size_bins.hpp"
#include "shm/result.hpp"

namespace apportion::bench {

// The C API: a pointer in, a pointer out, from any thread.
class Library {
 public:
  using Handle = void*;
  // Attaches to a job of the broker at `socket`. One line where it cannot.
  [[nodiscard]] static Result<Library> attach(const std::string& socket, const std::string& job) {
    apportion_attach_options options{};
    options.struct_size = sizeof options;
    options.socket = socket.c_str();
    options.job = job.c_str();
    Library library;
    if (apportion_attach(&options, &library.client_) != APPORTION_OK)
      return Error{Errc::not_attached, apportion_last_error()};
    return library;
  }
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
  // What it holds goes back to the broker.
  void detach() { apportion_detach(client_); }

 private:
  static apportion_stream stream_of(std::uint64_t stream) {
    return reinterpret_cast<apportion_stream>(stream);
  }
  apportion_client* client_ = nullptr;
};

// Handles, no lock, one range, streams ignored.
class Plain8 {
 public:
  using Handle = Ref8::Block;
  Plain8(std::uint64_t room_bytes, std::uint64_t blocks)
      : ref8_(static_cast<std::uint32_t>(room_bytes / kUnit), static_cast<std::uint32_t>(2 * blocks + 2)) {}
  Handle allocate(std::uint64_t bytes, std::uint64_t) noexcept {
    return ref8_.allocate(static_cast<std::uint32_t>((bytes + kUnit - 1) / kUnit));
  }
  void free(Handle block, std::uint64_t) noexcept { ref8_.free(block); }
  static bool none(Handle block) { return block.offset == Ref8::kNone; }

 private:
  Ref8 ref8_;
};

// The same for several threads: a mutex around each call.
class Locked8 {
 public:
  using Handle = Ref8::Block;
  Locked8(std::uint64_t room_bytes, std::uint64_t blocks) : plain_(room_bytes, blocks) {}
  Handle allocate(std::uint64_t bytes, std::uint64_t stream) {
    const std::lock_guard guard(mutex_);
    return plain_.allocate(bytes, stream);
  }
  void free(Handle block, std::uint64_t stream) {
    const std::lock_guard guard(mutex_);
    plain_.free(block, stream);
  }
  static bool none(Handle block) { return Plain8::none(block); }

 private:
  std::mutex mutex_;
  Plain8 plain_;
};

}  // namespace apportion::bench
