#include "cudasim/driver/capture.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cudasim/driver/process.hpp"

namespace cudasim {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

int thread_id() {
  return static_cast<int>(::syscall(SYS_gettid));
}

// Which calls are unsafe is not in the header beyond an example; the list is ours, to be settled on a device.
constexpr std::array<std::string_view, 41> kUnsafe = {"cuCtxCreate",
                                                      "cuCtxCreate_v2",
                                                      "cuCtxCreate_v3",
                                                      "cuCtxCreate_v4",
                                                      "cuCtxDestroy_v2",
                                                      "cuDevicePrimaryCtxRelease_v2",
                                                      "cuDevicePrimaryCtxReset_v2",
                                                      "cuDevicePrimaryCtxRetain",
                                                      "cuEventQuery",
                                                      "cuEventSynchronize",
                                                      "cuIpcCloseMemHandle",
                                                      "cuIpcGetMemHandle",
                                                      "cuIpcOpenMemHandle",
                                                      "cuIpcOpenMemHandle_v2",
                                                      "cuLibraryLoadData",
                                                      "cuLibraryUnload",
                                                      "cuMemAddressFree",
                                                      "cuMemAddressReserve",
                                                      "cuMemAllocHost_v2",
                                                      "cuMemAllocManaged",
                                                      "cuMemAllocPitch_v2",
                                                      "cuMemAlloc_v2",
                                                      "cuMemCreate",
                                                      "cuMemExportToShareableHandle",
                                                      "cuMemFreeHost",
                                                      "cuMemFree_v2",
                                                      "cuMemHostAlloc",
                                                      "cuMemHostRegister",
                                                      "cuMemHostRegister_v2",
                                                      "cuMemHostUnregister",
                                                      "cuMemImportFromShareableHandle",
                                                      "cuMemMap",
                                                      "cuMemPoolDestroy",
                                                      "cuMemPoolTrimTo",
                                                      "cuMemRelease",
                                                      "cuMemSetAccess",
                                                      "cuMemUnmap",
                                                      "cuModuleLoadData",
                                                      "cuModuleLoadDataEx",
                                                      "cuModuleLoadFatBinary",
                                                      "cuModuleUnload"};
static_assert(std::ranges::is_sorted(kUnsafe));

}  // namespace

bool unsafe_during_capture(const char* symbol) {
  return std::ranges::binary_search(kUnsafe, symbol);
}

CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

Captures& Captures::get() {
  static auto* captures = new Captures;
  return *captures;
}

void Captures::spoil(Capture& capture) {
  capture.spoiled = true;
}

void Captures::finish(const std::shared_ptr<Capture>& capture) {
  capture->origin->capture.reset();
  for (const auto& stream : capture->joined)
    stream->capture.reset();
  open_.erase(capture);
}

CUresult Captures::begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode) {
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(mutex_);
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id_++;
  capture->mode = mode;
  capture->thread = thread_id();
  capture->origin = stream;
  stream->capture = capture;
  open_.insert(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult Captures::end(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>& graph) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    spoil(*capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  finish(capture);
  if (capture->spoiled) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!capture->forked.empty()) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  graph = capture->graph;
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus Captures::status(const Stream& stream, u64* id, std::shared_ptr<Graph>* graph) {
  const std::lock_guard lock(mutex_);
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream.capture->spoiled) return CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (id != nullptr) *id = stream.capture->id;
  if (graph != nullptr) *graph = stream.capture->graph;
  return CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Whether what the legacy stream is asked would make it wait for a stream of this capture, or be waited for.
bool Captures::orders_itself(const Stream& legacy, const Capture& capture) const {
  const auto blocks = [&](const Stream& other) {
    return other.context == legacy.context && other.blocking();
  };
  return blocks(*capture.origin) ||
         std::ranges::any_of(capture.joined, [&](const auto& stream) { return blocks(*stream); });
}

// Work on the legacy stream would wait for captured streams that it orders itself against.
bool Captures::legacy_conflict(const Stream& stream) {
  bool conflict = false;
  if (!stream.legacy) return false;
  for (const auto& capture : open_) {
    if (!orders_itself(stream, *capture)) continue;
    spoil(*capture);
    conflict = true;
  }
  return conflict;
}

bool Captures::implicit(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  return stream.legacy &&
         std::ranges::any_of(open_, [&](const auto& capture) { return orders_itself(stream, *capture); });
}

CUresult Captures::take(const std::shared_ptr<Stream>& stream, Work& work, bool& taken) {
  const std::lock_guard lock(mutex_);
  taken = false;
  if (legacy_conflict(*stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  if (stream->capture->spoiled) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream != stream->capture->origin) stream->capture->forked.insert(stream);
  stream->capture->graph->nodes.push_back(std::move(work));
  taken = true;
  return CUDA_SUCCESS;
}

CUresult Captures::refuse_captured(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  if (legacy_conflict(*stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  spoil(*stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::refuse_context(const Context& context) {
  const std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : open_) {
    if (capture->origin->context != &context) continue;
    spoil(*capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult Captures::refuse_event(const CapturedPoint& point) {
  const std::lock_guard lock(mutex_);
  if (!open_.contains(point.capture)) return CUDA_ERROR_INVALID_VALUE;
  spoil(*point.capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}

std::optional<CapturedPoint> Captures::record(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  if (stream->capture == nullptr) return std::nullopt;
  return CapturedPoint{stream->capture, stream};
}

CUresult Captures::join(const std::shared_ptr<Stream>& stream, const CapturedPoint& point) {
  const std::lock_guard lock(mutex_);
  if (!open_.contains(point.capture)) return CUDA_ERROR_INVALID_VALUE;
  Capture& capture = *point.capture;
  if (stream->legacy) {
    spoil(capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream->capture != nullptr && stream->capture != point.capture) {
    spoil(capture);
    spoil(*stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (capture.spoiled) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture.forked.erase(point.stream);
  if (stream == capture.origin) return CUDA_SUCCESS;
  stream->capture = point.capture;
  capture.joined.insert(stream);
  capture.forked.insert(stream);
  return CUDA_SUCCESS;
}

CUresult Captures::check_unsafe() {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : open_) {
    const bool own = capture->thread == thread_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool everybody =
        thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !everybody) continue;
    spoil(*capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

void Captures::context_gone(const Context& context) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Capture>> gone;
  for (const auto& capture : open_) {
    if (capture->origin->context == &context) gone.push_back(capture);
  }
  for (const auto& capture : gone)
    finish(capture);
}

}  // namespace cudasim
