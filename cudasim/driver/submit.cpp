#include "cudasim/driver/submit.hpp"

#include "cudasim/driver/hooks.hpp"
#include "cudasim/driver/pool.hpp"
#include "cudasim/driver/progress.hpp"

namespace cudasim {
namespace {

CUresult give(const std::shared_ptr<Stream>& stream, Work work, Point& point) {
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  bool taken = false;
  const CUresult result = Captures::get().take(stream, work, taken);
  if (result != CUDA_SUCCESS || taken) return result;
  const bool host_function = work.host_function;
  point = Streams::get().enqueue(stream, std::move(work));
  if (host_function) run_eventually(point);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult submit(CUstream handle, Default meaning, Work work) {
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  Point point;
  return give(stream, std::move(work), point);
}

CUresult submit_and_wait(Default meaning, Work work) {
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(nullptr, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult captured = Captures::get().refuse_captured(stream);
  if (captured != CUDA_SUCCESS) return captured;
  Point point;
  const CUresult given = give(stream, std::move(work), point);
  return given != CUDA_SUCCESS ? given : Streams::get().wait(point);
}

CUresult synchronise_stream(CUstream handle, Default meaning) {
  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult captured = Captures::get().refuse_captured(stream);
  if (captured != CUDA_SUCCESS) return captured;
  // The legacy stream waits for the others: an empty piece there carries that order.
  const Point point = stream->legacy ? Streams::get().enqueue(stream, {.what = "cuStreamSynchronize"})
                                     : Streams::get().last(stream);
  const CUresult result = Streams::get().wait(point);
  Pools::get().at_synchronise();
  return result;
}

CUresult synchronise_context(Context& context) {
  if (Streams::inside_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult result = Streams::get().wait_all(context);
  Pools::get().at_synchronise();
  return result;
}

}  // namespace cudasim
