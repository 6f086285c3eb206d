// Apportion for C++: sessions and blocks that give themselves back. Header-only, over apportion.h.
//
// Errors are apportion::Failure, thrown: what() is the library's one line. Destructors never throw; what they
// cannot do is reported by the calls they stand for, if you make those yourself. So while a stream of the
// program is captured, where freeing an APPORTION_EXACT block and detaching answer APPORTION_BUSY, call
// Block::free and Session::detach: a Block that goes then stays allocated until its session is detached, and
// a Session that goes then stays attached until the process ends. Units, threads and streams: apportion.h.
#ifndef APPORTION_APPORTION_HPP
#define APPORTION_APPORTION_HPP

#include <apportion/apportion.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace apportion {
inline namespace v0 {

class Failure : public std::runtime_error {
 public:
  explicit Failure(apportion_status status) : std::runtime_error(apportion_last_error()), status_(status) {}
  [[nodiscard]] apportion_status status() const noexcept { return status_; }

 private:
  apportion_status status_;
};

inline void require(apportion_status status) {
  if (status != APPORTION_OK) throw Failure(status);
}

class Session;

// One block of device memory, freed on its stream when it goes. Must not outlive its Session.
class Block {
 public:
  Block() = default;  // empty
  Block(Block&& other) noexcept
      : client_(std::exchange(other.client_, nullptr)),
        pointer_(std::exchange(other.pointer_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        stream_(other.stream_) {}
  // What this block was is freed; where that answers APPORTION_BUSY, `other` has it then.
  Block& operator=(Block&& other) noexcept {
    if (this != &other) {
      free();
      std::swap(client_, other.client_);
      std::swap(pointer_, other.pointer_);
      std::swap(bytes_, other.bytes_);
      std::swap(stream_, other.stream_);
    }
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { free(); }

  [[nodiscard]] void* data() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }  // as asked for
  [[nodiscard]] explicit operator bool() const noexcept { return pointer_ != nullptr; }

  // The stream whose work its last use is ordered before; the allocation's, unless this says otherwise.
  void free_on(apportion_stream stream) noexcept { stream_ = stream; }
  // Empty then, and the status is why it may not be free; but after APPORTION_BUSY it is as it was: try
  // again.
  apportion_status free() noexcept {
    const apportion_status status =
        pointer_ != nullptr ? apportion_deallocate(client_, pointer_, stream_) : APPORTION_OK;
    if (status == APPORTION_BUSY) return status;
    pointer_ = nullptr;
    bytes_ = 0;
    return status;
  }
  void reset() noexcept { free(); }  // ask whether it is empty, where it may be busy

 private:
  friend class Session;
  Block(apportion_client* client, void* pointer, std::size_t bytes, apportion_stream stream) noexcept
      : client_(client), pointer_(pointer), bytes_(bytes), stream_(stream) {}

  apportion_client* client_ = nullptr;
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
  apportion_stream stream_ = nullptr;
};

// An attached session; detaches when it goes.
class Session {
 public:
  struct Options {
    std::string job;     // empty: APPORTION_JOB, else the config's default
    std::string socket;  // empty: APPORTION_SOCKET, else the default places
    std::string label;   // empty: the program's name
    bool reclaimable = false;
  };

  Session() : Session(Options()) {}
  explicit Session(const Options& options) {
    apportion_attach_options c = {};
    c.struct_size = sizeof c;
    c.job = options.job.empty() ? nullptr : options.job.c_str();
    c.socket = options.socket.empty() ? nullptr : options.socket.c_str();
    c.label = options.label.empty() ? nullptr : options.label.c_str();
    c.flags = options.reclaimable ? APPORTION_RECLAIMABLE : 0;
    require(apportion_attach(&c, &client_));
  }
  Session(Session&& other) noexcept : client_(std::exchange(other.client_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(client_, other.client_);
    return *this;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (client_ != nullptr) apportion_detach(client_);
  }

  [[nodiscard]] Block allocate(std::size_t bytes, apportion_stream stream = nullptr,
                               std::uint32_t flags = 0) {
    void* pointer = nullptr;
    require(apportion_allocate(client_, bytes, stream, flags, &pointer));
    return Block(client_, pointer, bytes, stream);
  }
  // Holds at least `bytes` from here on, or throws: start-up fails instead of a later request.
  void reserve(std::size_t bytes) { require(apportion_reserve(client_, bytes)); }
  // Bytes given back.
  std::size_t trim_to(std::size_t bytes) {
    std::size_t returned = 0;
    require(apportion_trim_to(client_, bytes, &returned));
    return returned;
  }
  // Around a capture, and when its graphs are gone. 0: a new pool. Returns the pool.
  apportion_graph_pool graph_pool_begin(apportion_stream stream, apportion_graph_pool pool = 0) {
    require(apportion_graph_pool_begin(client_, stream, &pool));
    return pool;
  }
  void graph_pool_end(apportion_stream stream) { require(apportion_graph_pool_end(client_, stream)); }
  void graph_pool_release(apportion_graph_pool pool) { require(apportion_graph_pool_release(client_, pool)); }
  void stream_gone(apportion_stream stream) { require(apportion_stream_gone(client_, stream)); }
  [[nodiscard]] apportion_info info() const {
    apportion_info info = {};
    info.struct_size = sizeof info;
    require(apportion_get_info(client_, &info));
    return info;
  }
  [[nodiscard]] apportion_stats stats() const {
    apportion_stats stats = {};
    stats.struct_size = sizeof stats;
    require(apportion_get_stats(client_, &stats));
    return stats;
  }
  // Ends the session now and says what went wrong. Blocks must be gone.
  void detach() {
    const apportion_status status = apportion_detach(client_);
    if (status != APPORTION_BUSY) client_ = nullptr;
    require(status);
  }
  [[nodiscard]] apportion_client* get() const noexcept { return client_; }

 private:
  apportion_client* client_ = nullptr;
};

}  // namespace v0
}  // namespace apportion

#endif
