// A CUDA program whose arrays live in memory leased from Apportion: y = a * x + y.
//
//   example_saxpy [JOB]     the job to join; without it the environment's APPORTION_JOB, else the config's
//                           [jobs.default]
//
// The pointers of libapportion go where those of cudaMalloc went: to copies, and to the kernel. A simulated
// device runs no kernels: there the program checks everything but the numbers, and says so.
#include <apportion/apportion.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace {

constexpr int kCount = 1 << 20;
constexpr float kFactor = 2.0f;

__global__ void saxpy(int count, float factor, const float* x, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = factor * x[i] + y[i];
}

void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

// The sixteen bytes as 8-4-4-4-12 hexadecimal digits.
std::string spelled(const cudaUUID_t& uuid) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

// The broker's device is not always the runtime's first: CUDA_VISIBLE_DEVICES, a second GPU.
void use_device(const std::string& uuid) {
  int count = 0;
  require(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    if (uuid.ends_with(spelled(properties.uuid))) return require(cudaSetDevice(device), "cudaSetDevice");
  }
  throw std::runtime_error("the runtime shows no device " + uuid);
}

// A stream that the library is told about before it goes.
class Stream {
 public:
  explicit Stream(apportion::Session& session) : session_(session) {
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~Stream() {
    apportion_stream_gone(session_.get(), stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  apportion::Session& session_;
  cudaStream_t stream_ = nullptr;
};

std::vector<float> compute(apportion::Session& session, const std::vector<float>& x,
                           const std::vector<float>& y) {
  const Stream stream(session);
  std::vector<float> result(kCount, -1);  // in neither array
  const std::size_t bytes = kCount * sizeof(float);
  const apportion::Block device_x = session.allocate(bytes, stream.get());
  const apportion::Block device_y = session.allocate(bytes, stream.get());
  auto* const at_x = static_cast<float*>(device_x.data());
  auto* const at_y = static_cast<float*>(device_y.data());
  std::printf("two arrays of %d floats, %llu bytes in use\n", kCount,
              static_cast<unsigned long long>(session.stats().bytes_in_use));

  require(cudaMemcpyAsync(at_x, x.data(), bytes, cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");
  require(cudaMemcpyAsync(at_y, y.data(), bytes, cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");
  saxpy<<<(kCount + 255) / 256, 256, 0, stream.get()>>>(kCount, kFactor, at_x, at_y);
  require(cudaGetLastError(), "saxpy<<<>>>");
  require(cudaMemcpyAsync(result.data(), at_y, bytes, cudaMemcpyDeviceToHost, stream.get()),
          "cudaMemcpyAsync");
  require(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  return result;
}

int run(const std::string& job) {
  apportion::Session::Options options;
  options.job = job;
  options.label = "saxpy";
  apportion::Session session(options);  // before the first call of the runtime
  const apportion_info info = session.info();
  use_device(info.device_uuid);
  std::printf("job %s on %s\n", info.job, info.device_name);

  std::vector<float> x(kCount);
  std::vector<float> y(kCount);
  for (int i = 0; i < kCount; ++i) {
    x[i] = static_cast<float>(i % 1000);
    y[i] = static_cast<float>(i % 7);
  }
  const std::vector<float> result = compute(session, x, y);
  int wrong = 0;
  for (int i = 0; i < kCount; ++i)
    wrong += result[i] != (info.simulated != 0 ? y[i] : kFactor * x[i] + y[i]);
  if (wrong != 0)
    std::printf("%d values are wrong\n", wrong);
  else if (info.simulated != 0)
    std::printf("copied there and back; numbers not checked: a simulated device runs no kernels\n");
  else
    std::printf("every number is right\n");
  session.trim_to(0);
  session.detach();
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "example_saxpy: %s\n", failure.what());
    return 1;
  }
}
