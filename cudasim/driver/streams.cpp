#include "cudasim/driver/streams.hpp"

#include <algorithm>
#include <utility>

#include "cudasim/driver/call.hpp"

namespace cudasim {
namespace {

thread_local int host_function_depth = 0;

// The per-thread default streams of one thread: marked destroyed when the thread ends.
struct ThreadStreams {
  std::unordered_map<Context*, std::shared_ptr<Stream>> by_context;
  ~ThreadStreams() {
    for (auto& [context, stream] : by_context) {
      (void)Streams::get().destroy(reinterpret_cast<CUstream>(stream.get()));
    }
  }
};
// Reached through a pointer: static destructors still make driver calls when thread_local objects are gone.
thread_local ThreadStreams* own_streams = nullptr;
struct ThreadEnd {
  bool armed = false;
  ~ThreadEnd() { delete std::exchange(own_streams, nullptr); }
};
thread_local ThreadEnd thread_end;

ThreadStreams& thread_streams() {
  if (own_streams == nullptr) {
    own_streams = new ThreadStreams;
    thread_end.armed = true;
  }
  return *own_streams;
}

bool touches(const Work& work, CUdeviceptr address, u64 bytes) {
  return std::ranges::any_of(work.uses, [&](const Use& use) {
    return use.address < address + bytes && address < use.address + use.bytes;
  });
}

void move_clock_to(u64 time_ns) {
  auto& clock = control().virtual_now_ns;
  u64 now = clock.load();
  while (now < time_ns && !clock.compare_exchange_weak(now, time_ns)) {
  }
}

// The sticky error, or what went wrong in the stream since somebody waited (rule 19 broken on purpose).
CUresult outcome(Stream& stream) {
  const CUresult failure = std::exchange(stream.failure, CUDA_SUCCESS);
  const CUresult sticky = sticky_error(*stream.context);
  return sticky != CUDA_SUCCESS ? sticky : failure;
}

void merge(Order& order, u64 stream, u64 sequence) {
  u64& known = order[stream];
  known = std::max(known, sequence);
}

}  // namespace

CUresult sticky_error(const Context& context) {
  return static_cast<CUresult>(context.sticky.load());
}

// Leaked: a thread may still run a host function while the process's static objects go.
Streams& Streams::get() {
  static auto* streams = new Streams;
  return *streams;
}

bool Streams::inside_host_function() {
  return host_function_depth != 0;
}

std::shared_ptr<Stream> Streams::add(Context& context, unsigned flags, int priority, bool legacy) {
  auto stream = std::make_shared<Stream>();
  stream->id = next_id_++;
  stream->context = &context;
  stream->flags = flags;
  stream->priority = priority;
  stream->legacy = legacy;
  all_.emplace(stream->id, stream);
  if (!legacy) handles_.emplace(reinterpret_cast<CUstream>(stream.get()), stream);
  return stream;
}

std::shared_ptr<Stream> Streams::create(Context& context, unsigned flags, int priority) {
  const Lock lock(mutex_);
  return add(context, flags, priority, false);
}

std::shared_ptr<Stream> Streams::legacy_of(Context& context) {
  auto& stream = legacy_[&context];
  if (stream == nullptr) stream = add(context, 0, 0, true);
  return stream;
}

CUresult Streams::find(CUstream handle, Default meaning, std::shared_ptr<Stream>& out) {
  Context* context = current_context();
  const bool null = handle == nullptr;
  if ((null && meaning == Default::kLegacy) || handle == CU_STREAM_LEGACY) {
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const Lock lock(mutex_);
    out = legacy_of(*context);
    return CUDA_SUCCESS;
  }
  if (null || handle == CU_STREAM_PER_THREAD) {
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    auto& stream = thread_streams().by_context[context];
    const Lock lock(mutex_);
    if (stream == nullptr || stream->destroyed) stream = add(*context, 0, 0, false);
    out = stream;
    return CUDA_SUCCESS;
  }
  const Lock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (!found->second->context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  out = found->second;
  return CUDA_SUCCESS;
}

CUresult Streams::destroy(CUstream handle) {
  const Lock lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return CUDA_ERROR_INVALID_HANDLE;
  found->second->destroyed = true;
  handles_.erase(found);
  sweep();
  return CUDA_SUCCESS;
}

void Streams::sweep() {
  std::vector<u64> gone;
  for (const auto& [id, stream] : all_) {
    if (stream->destroyed && stream->queue.empty()) gone.push_back(id);
  }
  // Nothing is left that could come before or after the work of such a stream.
  for (const u64 id : gone) {
    all_.erase(id);
    for (auto& [other, stream] : all_)
      stream->order.erase(id);
  }
}

Point Streams::enqueue(const std::shared_ptr<Stream>& stream, Work work, const std::vector<Point>& after) {
  Lock lock(mutex_);
  run_ticked(lock);
  Queued queued{.work = std::move(work), .sequence = ++stream->given, .after = after};
  const auto add_after = [&queued](const std::shared_ptr<Stream>& other) {
    if (other->done != other->given) queued.after.push_back({other, other->given, other->ready_ns, nullptr});
  };
  if (stream->legacy) {
    for (auto& [id, other] : all_) {
      if (other->context == stream->context && other->blocking()) {
        add_after(other);
        for (const auto& [before, sequence] : other->order)
          merge(stream->order, before, sequence);
      }
    }
  } else if (stream->blocking()) {
    const auto legacy = legacy_.find(stream->context);
    if (legacy != legacy_.end()) {
      add_after(legacy->second);
      for (const auto& [before, sequence] : legacy->second->order)
        merge(stream->order, before, sequence);
    }
  }

  u64 start_ns = std::max(control().virtual_now_ns.load(), stream->ready_ns);
  for (const Point& point : queued.after) {
    start_ns = std::max(start_ns, point.ready_ns);
    if (point.stream != nullptr) merge(stream->order, point.stream->id, point.sequence);
    if (point.order != nullptr) {
      for (const auto& [before, sequence] : *point.order)
        merge(stream->order, before, sequence);
    }
  }
  std::erase_if(queued.after,
                [](const Point& p) { return p.stream == nullptr || p.stream->done >= p.sequence; });
  check_fill(*stream, queued.work);

  merge(stream->order, stream->id, queued.sequence);
  stream->ready_ns = queued.ready_ns = start_ns + queued.work.duration_ns;
  queued.tick = control().ticks.load();
  stream->queue.push_back(std::move(queued));
  const Point point{stream, stream->given, stream->ready_ns, std::make_shared<const Order>(stream->order)};
  if (control().lazy_streams.load() == 0) complete(lock, stream, point.sequence);
  return point;
}

Point Streams::last(const std::shared_ptr<Stream>& stream) {
  const Lock lock(mutex_);
  return {stream, stream->given, stream->ready_ns, std::make_shared<const Order>(stream->order)};
}

// A scrub that is not ordered behind other streams' work on the same bytes may run under it: the next owner
// would find the last owner's late writes (rule 31).
void Streams::check_fill(const Stream& stream, const Work& work) const {
  if (!work.fill) return;
  for (const auto& [id, other] : all_) {
    if (other.get() == &stream) continue;
    const auto known = stream.order.find(id);
    const u64 ordered = known == stream.order.end() ? 0 : known->second;
    for (const Queued& queued : other->queue) {
      if (queued.sequence <= ordered) continue;
      for (const Use& use : work.uses) {
        if (touches(queued.work, use.address, use.bytes)) {
          violation("scrubbed under pending work", use.address, use.bytes);
          return;
        }
      }
    }
  }
}

// Runs the front of a stream that is not busy. The piece stays in the queue, and visible to pending(), until
// it is done. Pieces it comes after are older, so two threads never wait for each other.
void Streams::run_front(Lock& lock, const std::shared_ptr<Stream>& stream) {
  stream->busy = true;
  Queued& queued = stream->queue.front();  // push_back on a deque leaves it where it is
  for (const Point& point : queued.after)
    complete(lock, point.stream, point.sequence);
  Context& context = *stream->context;
  const bool runs =
      queued.work.effect != nullptr && context.alive.load() && sticky_error(context) == CUDA_SUCCESS;
  if (runs) {
    lock.unlock();
    const bool host = queued.work.host_function;
    if (host) ++host_function_depth;
    const CUresult result = queued.work.effect();
    if (host) --host_function_depth;
    // Whatever went wrong while work ran is for a device an access to what is not there (rule 19).
    if (result != CUDA_SUCCESS) (void)make_sticky(&context, CUDA_ERROR_ILLEGAL_ADDRESS);
    lock.lock();
    if (result != CUDA_SUCCESS) stream->failure = result;
  }
  stream->done = queued.sequence;
  stream->queue.pop_front();
  stream->busy = false;
  moved_.notify_all();
}

void Streams::complete(Lock& lock, const std::shared_ptr<Stream>& stream, u64 sequence) {
  while (stream->done < sequence && !stream->queue.empty()) {
    if (stream->busy) {
      moved_.wait(lock);
    } else {
      run_front(lock, stream);
    }
  }
}

void Streams::run_ticked(Lock& lock) {
  const u64 ticks = control().ticks.load();
  if (ticks == ticks_seen_ || inside_host_function()) return;
  ticks_seen_ = ticks;
  std::vector<std::shared_ptr<Stream>> streams;
  for (auto& [id, stream] : all_)
    streams.push_back(stream);
  for (auto& stream : streams) {
    u64 upto = stream->done;
    for (const Queued& queued : stream->queue) {
      if (queued.tick < ticks) upto = queued.sequence;
    }
    complete(lock, stream, upto);
  }
}

CUresult Streams::wait(const Point& point) {
  if (point.stream == nullptr) return CUDA_SUCCESS;
  Lock lock(mutex_);
  run_ticked(lock);
  complete(lock, point.stream, point.sequence);
  move_clock_to(point.ready_ns);
  sweep();
  return outcome(*point.stream);
}

CUresult Streams::wait_all(Context& context) {
  Lock lock(mutex_);
  run_ticked(lock);
  std::vector<std::shared_ptr<Stream>> streams;
  for (auto& [id, stream] : all_) {
    if (stream->context == &context) streams.push_back(stream);
  }
  CUresult first = sticky_error(context);
  for (auto& stream : streams) {
    const u64 ready_ns = stream->ready_ns;
    complete(lock, stream, stream->given);
    move_clock_to(ready_ns);
    if (const CUresult result = outcome(*stream); result != CUDA_SUCCESS) first = result;
  }
  sweep();
  return first;
}

CUresult Streams::query(const Point& point) {
  if (point.stream == nullptr) return CUDA_SUCCESS;
  Lock lock(mutex_);
  run_ticked(lock);
  const u64 now = control().virtual_now_ns.fetch_add(kQueryNs) + kQueryNs;
  Stream& stream = *point.stream;
  while (stream.done < point.sequence && !stream.busy && !stream.queue.empty() &&
         stream.queue.front().ready_ns <= now) {
    run_front(lock, point.stream);
  }
  if (stream.done < point.sequence && !stream.queue.empty()) return CUDA_ERROR_NOT_READY;
  return outcome(stream);
}

bool Streams::done(const Point& point) {
  if (point.stream == nullptr) return true;
  const Lock lock(mutex_);
  return point.stream->done >= point.sequence;
}

const char* Streams::pending(CUdeviceptr address, u64 bytes) {
  Lock lock(mutex_);
  run_ticked(lock);
  for (const auto& [id, stream] : all_) {
    for (const Queued& queued : stream->queue) {
      if (touches(queued.work, address, bytes)) return queued.work.what;
    }
  }
  return nullptr;
}

void Streams::context_gone(Context& context) {
  Lock lock(mutex_);
  moved_.wait(lock, [&] {
    return std::ranges::none_of(
        all_, [&](const auto& e) { return e.second->context == &context && e.second->busy; });
  });
  for (auto& [id, stream] : all_) {
    if (stream->context != &context) continue;
    stream->done = stream->given;
    stream->queue.clear();
    stream->destroyed = true;
  }
  std::erase_if(handles_, [&](const auto& entry) { return entry.second->context == &context; });
  legacy_.erase(&context);
  sweep();
}

}  // namespace cudasim
