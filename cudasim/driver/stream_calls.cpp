// The exported functions about streams and capture.
#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

CUresult create(CUstream* out, unsigned flags, int priority) {
  if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUstream>(Streams::get().create(*current_context(), flags, priority).get());
  return CUDA_SUCCESS;
}

CUresult destroy(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, Default::kLegacy, stream);
  if (found != CUDA_SUCCESS) return found;
  if (Captures::get().status(*stream) != CU_STREAM_CAPTURE_STATUS_NONE) {
    return Captures::get().refuse_captured(stream);
  }
  return Streams::get().destroy(handle);
}

CUresult query(CUstream handle, Default meaning) {
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult captured = Captures::get().refuse_captured(stream);
  if (captured != CUDA_SUCCESS) return captured;
  const Point point = stream->legacy ? Streams::get().enqueue(stream, {.what = "cuStreamQuery"})
                                     : Streams::get().last(stream);
  return Streams::get().query(point);
}

// Runs `give` on the stream, for the functions that only look at it.
template <typename Give>
CUresult look(CUstream handle, Default meaning, bool pointers_given, Give give) {
  if (!pointers_given) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  return found != CUDA_SUCCESS ? found : give(*stream);
}

CUresult begin(CUstream handle, Default meaning, CUstreamCaptureMode mode) {
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  return found != CUDA_SUCCESS ? found : Captures::get().begin(stream, mode);
}

CUresult end(CUstream handle, Default meaning, CUgraph* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  std::shared_ptr<Graph> graph;
  const CUresult result = Captures::get().end(stream, graph);
  *out = result == CUDA_SUCCESS ? register_graph(std::move(graph)) : nullptr;
  return result;
}

CUresult capture_status(CUstream handle, Default meaning, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return look(handle, meaning, status != nullptr, [&](Stream& stream) {
    u64 number = 0;
    if (Captures::get().implicit(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = Captures::get().status(stream, &number);
    if (id != nullptr) *id = number;
    return CUDA_SUCCESS;
  });
}

// Nodes have no handles here, so the dependencies are an empty list.
CUresult capture_info(CUstream handle, Default meaning, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                      size_t* count) {
  return look(handle, meaning, status != nullptr, [&](Stream& stream) {
    u64 number = 0;
    if (Captures::get().implicit(stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    std::shared_ptr<Graph> captured;
    *status = Captures::get().status(stream, &number, &captured);
    if (id != nullptr) *id = number;
    if (graph != nullptr) *graph = captured != nullptr ? register_graph(std::move(captured)) : nullptr;
    if (dependencies != nullptr) *dependencies = nullptr;
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = 0;
    return CUDA_SUCCESS;
  });
}

CUresult exchange(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  *mode = exchange_capture_mode(*mode);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned flags) {
  CUDASIM_CALL(cuStreamCreate, Needs::kContext, flags);
  return call.done(create(stream, flags, 0));
}
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  CUDASIM_CALL(cuStreamCreateWithPriority, Needs::kContext, flags, priority);
  return call.done(create(stream, flags, priority));
}
CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
  CUDASIM_CALL(cuStreamDestroy_v2, Needs::kDriver, stream);
  return call.done(destroy(stream));
}
CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  CUDASIM_CALL(cuStreamDestroy, Needs::kDriver, stream);
  return call.done(destroy(stream));
}
CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  CUDASIM_CALL(cuThreadExchangeStreamCaptureMode, Needs::kInit);
  return call.done(exchange(mode));
}

CUDASIM_BOTH(cuStreamSynchronize, _ptsz, (CUstream stream), (stream), synchronise_stream(stream, meaning))
CUDASIM_BOTH(cuStreamQuery, _ptsz, (CUstream stream), (stream), query(stream, meaning))
CUDASIM_BOTH(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned* flags), (handle),
             look(handle, meaning, flags != nullptr, [&](Stream& stream) {
               *flags = stream.flags;
               return CUDA_SUCCESS;
             }))
CUDASIM_BOTH(cuStreamGetPriority, _ptsz, (CUstream handle, int* priority), (handle),
             look(handle, meaning, priority != nullptr, [&](Stream& stream) {
               *priority = stream.priority;
               return CUDA_SUCCESS;
             }))
CUDASIM_BOTH(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long* id), (handle),
             look(handle, meaning, id != nullptr, [&](Stream& stream) {
               *id = stream.id;
               return CUDA_SUCCESS;
             }))
CUDASIM_BOTH(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext* context), (handle),
             look(handle, meaning, context != nullptr, [&](Stream& stream) {
               *context = handle_of(stream.context);
               return CUDA_SUCCESS;
             }))
CUDASIM_BOTH(cuStreamGetCtx_v2, _ptsz, (CUstream handle, CUcontext* context, CUgreenCtx* green), (handle),
             look(handle, meaning, context != nullptr && green != nullptr, [&](Stream& stream) {
               *context = handle_of(stream.context);
               *green = nullptr;
               return CUDA_SUCCESS;
             }))
CUDASIM_BOTH(cuStreamGetDevice, _ptsz, (CUstream handle, CUdevice* device), (handle),
             look(handle, meaning, device != nullptr, [&](Stream& stream) {
               *device = stream.context->device;
               return CUDA_SUCCESS;
             }))

CUDASIM_BOTH(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream),
             begin(stream, meaning, CU_STREAM_CAPTURE_MODE_GLOBAL))
CUDASIM_BOTH(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode),
             begin(stream, meaning, mode))
CUDASIM_BOTH(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph* graph), (stream),
             end(stream, meaning, graph))
CUDASIM_BOTH(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus* status), (stream),
             capture_status(stream, meaning, status, nullptr))
CUDASIM_BOTH(cuStreamGetCaptureInfo_v2, _ptsz,
             (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, size_t* count),
             (stream), capture_info(stream, meaning, status, id, graph, dependencies, nullptr, count))
CUDASIM_BOTH(cuStreamGetCaptureInfo_v3, _ptsz,
             (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count),
             (stream), capture_info(stream, meaning, status, id, graph, dependencies, edges, count))
CUDASIM_BOTH(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
             (stream), capture_status(stream, meaning, status, id))

}  // extern "C"
