// Streams and events. Capture, priorities and the per-thread default stream are not here.
#include "cudasim/cudart/runtime.hpp"

using namespace cudasim::cudart;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return with_context([&](const Driver& driver) { return driver.cuStreamCreate(stream, flags); });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return with_context([&](const Driver& driver) { return driver.cuStreamDestroy(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return with_context([&](const Driver& driver) { return driver.cuStreamSynchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return with_context([&](const Driver& driver) { return driver.cuStreamQuery(stream); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return with_context([&](const Driver& driver) { return driver.cuStreamWaitEvent(stream, event, flags); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return with_context([&](const Driver& driver) { return driver.cuLaunchHostFunc(stream, function, data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return with_context([&](const Driver& driver) { return driver.cuEventCreate(event, flags); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return with_context([&](const Driver& driver) { return driver.cuEventRecord(event, stream); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return with_context([&](const Driver& driver) { return driver.cuEventSynchronize(event); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_context([&](const Driver& driver) { return driver.cuEventQuery(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return with_context(
      [&](const Driver& driver) { return driver.cuEventElapsedTime(milliseconds, start, end); });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return with_context([&](const Driver& driver) { return driver.cuEventDestroy(event); });
}

}  // extern "C"
