// The streams of this process: work is queued at launch and runs later, in stream order.
//
// Work runs when a program synchronises with it, when a query finds its virtual time passed, or at a tick
// (control().ticks), never at launch; `control().lazy_streams == 0` runs it at once. It runs on the thread
// that asks, with no lock held; each stream runs one piece at a time. A piece stays in its queue until it is
// done, so pending() sees everything that may still run: what the host has not waited for counts as running.
// The legacy default stream waits for, and holds back, every stream of its context not made NON_BLOCKING.
// Thread-safe. Never: looks at other processes' work.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "cudasim/driver/work.hpp"

namespace cudasim {

struct Capture;

struct Queued {
  Work work;
  u64 sequence = 0;
  u64 ready_ns = 0;
  u64 tick = 0;  // control().ticks when it was given
  std::vector<Point> after = {};
};

// Fields below `context` are guarded by the engine's lock.
struct Stream {
  u64 id = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  Context* context = nullptr;

  u64 given = 0, done = 0;          // sequence numbers
  u64 ready_ns = 0;                 // virtual time at which all of it is done
  bool busy = false;                // a thread runs its front
  CUresult failure = CUDA_SUCCESS;  // of work that ran, for the next that waits
  bool destroyed = false;           // kept until its work is done
  std::deque<Queued> queue;
  Order order;                       // what its next piece comes after
  std::shared_ptr<Capture> capture;  // guarded by the capture lock (capture.hpp)

  bool blocking() const { return !legacy && (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

// Which stream a null handle means: set by the _ptds and _ptsz forms.
enum class Default { kLegacy, kPerThread };

class Streams {
 public:
  static Streams& get();

  std::shared_ptr<Stream> create(Context& context, unsigned flags, int priority);
  // CUDA_ERROR_INVALID_HANDLE for a handle that is not a stream of a living context.
  CUresult find(CUstream handle, Default meaning, std::shared_ptr<Stream>& out);
  // Its work still runs; the handle is gone.
  CUresult destroy(CUstream handle);

  // Queues `work` behind everything in `stream` and `after`. The caller has dealt with capture.
  Point enqueue(const std::shared_ptr<Stream>& stream, Work work, const std::vector<Point>& after = {});
  // Everything given to `stream` so far.
  Point last(const std::shared_ptr<Stream>& stream);

  // Runs everything up to `point`. The sticky error of its context, if there is one.
  CUresult wait(const Point& point);
  CUresult wait_all(Context& context);
  // Moves the virtual clock by kQueryNs and runs what is due of `point`'s stream; CUDA_ERROR_NOT_READY.
  CUresult query(const Point& point);
  bool done(const Point& point);

  // Name of a piece of work that may still run and touches the bytes; nullptr: none.
  const char* pending(CUdeviceptr address, u64 bytes);

  // Drops the streams of a context that is about to die; its work does not run any more.
  void context_gone(Context& context);

  // True on a thread that is inside a host function: driver calls are not permitted there.
  static bool inside_host_function();

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::shared_ptr<Stream> add(Context& context, unsigned flags, int priority, bool legacy);
  std::shared_ptr<Stream> legacy_of(Context& context);
  void complete(Lock& lock, const std::shared_ptr<Stream>& stream, u64 sequence);
  void run_front(Lock& lock, const std::shared_ptr<Stream>& stream);
  void run_ticked(Lock& lock);
  void sweep();
  void check_fill(const Stream& stream, const Work& work) const;

  std::mutex mutex_;
  std::condition_variable moved_;
  u64 next_id_ = 1;
  u64 ticks_seen_ = 0;
  std::map<u64, std::shared_ptr<Stream>> all_;  // with destroyed ones that still have work
  std::unordered_map<CUstream, std::shared_ptr<Stream>> handles_;
  std::unordered_map<Context*, std::shared_ptr<Stream>> legacy_;
};

// The context's sticky error, or CUDA_SUCCESS.
CUresult sticky_error(const Context& context);

}  // namespace cudasim
