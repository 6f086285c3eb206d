// Events. An event is a point in a stream; what it costs is paid when somebody asks for it, not when it is
// recorded.
#include <algorithm>

#include "cudasim/driver/pool.hpp"
#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  bool recorded = false;
  Point point;
  std::optional<CapturedPoint> captured;  // recorded in a capture: cannot be asked
};

constexpr unsigned kFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// Handles are addresses of events; only those in the table are followed.
class Events {
 public:
  static Events& get() {
    static auto* events = new Events;
    return *events;
  }
  CUevent add(std::shared_ptr<Event> event) {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<CUevent>(event.get());
    events_.emplace(handle, std::move(event));
    return handle;
  }
  CUresult remove(CUevent handle) {
    const std::lock_guard lock(mutex_);
    return events_.erase(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  // A copy: the event may be recorded again meanwhile, and a wait is for what was recorded when it began.
  std::optional<Event> read(CUevent handle) {
    const std::lock_guard lock(mutex_);
    const auto found = events_.find(handle);
    return found == events_.end() ? std::nullopt : std::optional(*found->second);
  }
  CUresult record(CUevent handle, Point point, std::optional<CapturedPoint> captured) {
    const std::lock_guard lock(mutex_);
    const auto found = events_.find(handle);
    if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
    Event& event = *found->second;
    event.recorded = true;
    event.point = std::move(point);
    event.captured = std::move(captured);
    return CUDA_SUCCESS;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<CUevent, std::shared_ptr<Event>> events_;
};

CUresult create(CUevent* out, unsigned flags) {
  if (out == nullptr || (flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = current_context();
  event->flags = flags;
  *out = Events::get().add(std::move(event));
  return CUDA_SUCCESS;
}

CUresult record(CUevent handle, CUstream stream_handle, Default meaning, unsigned flags) {
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const auto event = Events::get().read(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(stream_handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (auto captured = Captures::get().record(stream))
    return Events::get().record(handle, {}, std::move(captured));
  Work marker{.what = "cuEventRecord"};
  bool taken = false;
  const CUresult result = Captures::get().take(stream, marker, taken);
  if (result != CUDA_SUCCESS) return result;
  return Events::get().record(handle, Streams::get().enqueue(stream, std::move(marker)), std::nullopt);
}

CUresult query(CUevent handle) {
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const auto event = Events::get().read(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return Captures::get().refuse_event(*event->captured);
  return event->recorded ? Streams::get().query(event->point) : CUDA_SUCCESS;
}

CUresult synchronise(CUevent handle) {
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const auto event = Events::get().read(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return Captures::get().refuse_event(*event->captured);
  if (!event->recorded) return CUDA_SUCCESS;
  const CUresult result = Streams::get().wait(event->point);
  Pools::get().at_synchronise();
  return result;
}

CUresult elapsed(float* milliseconds, CUevent from, CUevent to) {
  const auto start = Events::get().read(from);
  const auto end = Events::get().read(to);
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!start || !end || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (start->captured || end->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (!Streams::get().done(start->point) || !Streams::get().done(end->point)) return CUDA_ERROR_NOT_READY;
  const auto ns = static_cast<double>(end->point.ready_ns) - static_cast<double>(start->point.ready_ns);
  *milliseconds = static_cast<float>(ns / 1e6);
  return CUDA_SUCCESS;
}

CUresult make_wait(CUstream stream_handle, Default meaning, CUevent handle, unsigned flags) {
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const auto event = Events::get().read(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(stream_handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  if (event->captured) return Captures::get().join(stream, *event->captured);
  if (!event->recorded) return CUDA_SUCCESS;
  // Inside a capture only events of that capture can be waited for.
  if (Captures::get().status(*stream) != CU_STREAM_CAPTURE_STATUS_NONE) {
    (void)Captures::get().refuse_captured(stream);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  (void)Streams::get().enqueue(stream, {.what = "cuStreamWaitEvent"}, {event->point});
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned flags) {
  CUDASIM_CALL(cuEventCreate, Needs::kContext, flags);
  return call.done(create(event, flags));
}
CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
  CUDASIM_CALL(cuEventDestroy_v2, Needs::kDriver, event);
  return call.done(Events::get().remove(event));
}
CUresult CUDAAPI cuEventDestroy(CUevent event) {
  CUDASIM_CALL(cuEventDestroy, Needs::kDriver, event);
  return call.done(Events::get().remove(event));
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
  CUDASIM_CALL(cuEventQuery, Needs::kDriver, event);
  return call.done(query(event));
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  CUDASIM_CALL(cuEventSynchronize, Needs::kDriver, event);
  return call.done(synchronise(event));
}
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  CUDASIM_CALL(cuEventElapsedTime, Needs::kDriver, from, to);
  return call.done(elapsed(milliseconds, from, to));
}
CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  CUDASIM_CALL(cuEventElapsedTime_v2, Needs::kDriver, from, to);
  return call.done(elapsed(milliseconds, from, to));
}

CUDASIM_BOTH(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream),
             record(event, stream, meaning, 0))
CUDASIM_BOTH(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags), (event, stream),
             record(event, stream, meaning, flags))
CUDASIM_BOTH(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags), (stream, event),
             make_wait(stream, meaning, event, flags))

}  // extern "C"
