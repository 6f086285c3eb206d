// The stand-in libcudart.so.13: devices, memory, streams, errors, and which driver it accepts.
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/unit/cudasim/runtime.hpp"

using namespace cudasim::testing;

namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char piece[512];
  while (std::fgets(piece, sizeof piece, pipe) != nullptr)
    text += piece;
  CHECK(::pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("cudart: every driver function is asked for at a version at which NVIDIA's runtime asks for it") {
  std::ifstream list(APPORTION_TEST_DATA "/cudart13_queries.txt");
  std::set<std::string> theirs;
  for (std::string line; std::getline(list, line);)
    theirs.insert(line);
  int count = 0;
#define CUDART_ENTRY(name, version)                \
  CHECK(theirs.contains(#name " " #version " 0")); \
  ++count;
#include "cudasim/cudart/entry_points.def"
#undef CUDART_ENTRY
  CHECK(count > 40);
}

TEST_CASE("cudart: the device is the driver's, and no context is made by looking") {
  int value = 0;
  CHECK(RUNTIME(cudaGetDeviceCount)(&value) == cudaSuccess);
  CHECK(value == 1);
  CHECK(RUNTIME(cudaRuntimeGetVersion)(&value) == cudaSuccess);
  CHECK(value / 1000 == 13);
  cudaDeviceProp prop{};
  CHECK(RUNTIME(cudaGetDeviceProperties)(&prop, 0) == cudaSuccess);
  CHECK(prop.totalGlobalMem == 1024 * kMib);
  CHECK(prop.warpSize == 32);
  char name[sizeof prop.name] = {};
  REQUIRE(DRIVER(cuDeviceGetName)(name, sizeof name, 0) == CUDA_SUCCESS);
  CHECK(std::string(prop.name) == name);
  CUuuid uuid{};
  REQUIRE(DRIVER(cuDeviceGetUuid)(&uuid, 0) == CUDA_SUCCESS);
  CHECK(std::string(prop.uuid.bytes, 16) == std::string(uuid.bytes, 16));
  unsigned flags = 0;
  int active = -1;
  CHECK(DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CHECK(RUNTIME(cudaGetDeviceProperties)(&prop, 1) == cudaErrorInvalidDevice);
  CHECK(RUNTIME(cudaSetDevice)(7) == cudaErrorInvalidDevice);
  CHECK(RUNTIME(cudaGetLastError)() == cudaErrorInvalidDevice);
}

TEST_CASE("cudart: memory goes there and back, by every kind of copy, and freed bytes are free") {
  std::size_t before = 0;
  std::size_t total = 0;
  REQUIRE(RUNTIME(cudaMemGetInfo)(&before, &total) == cudaSuccess);
  CHECK(total == 1024 * kMib);
  void* device = nullptr;
  void* other = nullptr;
  REQUIRE(RUNTIME(cudaMalloc)(&device, 4 * kMib) == cudaSuccess);
  REQUIRE(RUNTIME(cudaMalloc)(&other, 4 * kMib) == cudaSuccess);
  std::vector<unsigned> words(1024);
  for (unsigned i = 0; i < words.size(); ++i)
    words[i] = i * 2654435761u;
  const std::size_t bytes = words.size() * sizeof words[0];
  std::vector<unsigned> back(words.size());
  CHECK(RUNTIME(cudaMemcpy)(device, words.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(RUNTIME(cudaMemcpy)(other, device, bytes, cudaMemcpyDeviceToDevice) == cudaSuccess);
  CHECK(RUNTIME(cudaMemcpy)(back.data(), other, bytes, cudaMemcpyDefault) == cudaSuccess);
  CHECK(back == words);
  CHECK(RUNTIME(cudaMemset)(other, 0x5a, bytes) == cudaSuccess);
  CHECK(RUNTIME(cudaMemcpy)(back.data(), other, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(back == std::vector<unsigned>(words.size(), 0x5a5a5a5au));
  CHECK(RUNTIME(cudaMemcpy)(other, device, bytes, static_cast<cudaMemcpyKind>(9)) ==
        cudaErrorInvalidMemcpyDirection);
  CHECK(RUNTIME(cudaFree)(device) == cudaSuccess);
  CHECK(RUNTIME(cudaFree)(other) == cudaSuccess);
  CHECK(RUNTIME(cudaFree)(nullptr) == cudaSuccess);
  std::size_t after = 0;
  CHECK(RUNTIME(cudaMemGetInfo)(&after, &total) == cudaSuccess);
  CHECK(after == before);
}

TEST_CASE("cudart: work on a stream is done when it was waited for, in its order") {
  cudaStream_t stream = nullptr;
  REQUIRE(RUNTIME(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking) == cudaSuccess);
  void* device = nullptr;
  void* pinned = nullptr;
  REQUIRE(RUNTIME(cudaMallocAsync)(&device, kMib, stream) == cudaSuccess);
  REQUIRE(RUNTIME(cudaMallocHost)(&pinned, kMib) == cudaSuccess);
  auto* bytes = static_cast<unsigned char*>(pinned);
  bytes[0] = 0;
  CHECK(RUNTIME(cudaMemsetAsync)(device, 7, kMib, stream) == cudaSuccess);
  CHECK(RUNTIME(cudaMemcpyAsync)(pinned, device, kMib, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  cudaEvent_t event = nullptr;
  REQUIRE(RUNTIME(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(RUNTIME(cudaEventRecord)(event, stream) == cudaSuccess);
  CHECK(bytes[0] == 0);  // not at the launch
  CHECK(RUNTIME(cudaEventSynchronize)(event) == cudaSuccess);
  CHECK(bytes[0] == 7);
  CHECK(bytes[kMib - 1] == 7);
  CHECK(RUNTIME(cudaEventQuery)(event) == cudaSuccess);
  CHECK(RUNTIME(cudaFreeAsync)(device, stream) == cudaSuccess);
  CHECK(RUNTIME(cudaStreamSynchronize)(stream) == cudaSuccess);
  CHECK(RUNTIME(cudaEventDestroy)(event) == cudaSuccess);
  CHECK(RUNTIME(cudaStreamDestroy)(stream) == cudaSuccess);
  CHECK(RUNTIME(cudaFreeHost)(pinned) == cudaSuccess);
}

TEST_CASE("cudart: an error is its thread's last until it is asked for, and leaves out-pointers alone") {
  void* untouched = &untouched;
  CHECK(RUNTIME(cudaMalloc)(&untouched, 2048 * kMib) == cudaErrorMemoryAllocation);
  CHECK(untouched == &untouched);
  CHECK(RUNTIME(cudaPeekAtLastError)() == cudaErrorMemoryAllocation);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = RUNTIME(cudaGetLastError)(); }).join();
  CHECK(elsewhere == cudaSuccess);
  int count = 0;
  CHECK(RUNTIME(cudaGetDeviceCount)(&count) == cudaSuccess);  // a success does not clear it
  CHECK(RUNTIME(cudaGetLastError)() == cudaErrorMemoryAllocation);
  CHECK(RUNTIME(cudaGetLastError)() == cudaSuccess);
  CHECK(std::string(RUNTIME(cudaGetErrorName)(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
  CHECK(std::string(RUNTIME(cudaGetErrorString)(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(RUNTIME(cudaGetErrorName)(static_cast<cudaError_t>(12345))) == "unrecognized error code");
}

TEST_CASE("cudart: a context that the program made current is used, and no other is made") {
  CUcontext own = nullptr;
  REQUIRE(DRIVER(cuCtxCreate)(&own, nullptr, 0, 0) == CUDA_SUCCESS);
  void* device = nullptr;
  CHECK(RUNTIME(cudaMalloc)(&device, kMib) == cudaSuccess);
  CUcontext current = nullptr;
  CHECK(DRIVER(cuCtxGetCurrent)(&current) == CUDA_SUCCESS);
  CHECK(current == own);
  CHECK(RUNTIME(cudaFree)(device) == cudaSuccess);
  REQUIRE(DRIVER(cuCtxDestroy)(own) == CUDA_SUCCESS);
}

TEST_CASE("cudart: a driver that is not the simulator is refused, with one line") {
  const std::string child =
      std::string(CUDASIM_CUDART_CHILD) + " " + CUDASIM_OTHER_DRIVER + " " + CUDASIM_LIBCUDART + " 2>&1";
  const std::string said = output_of(child);
  INFO(said);
  CHECK(said.find("runs on the simulated driver only") != std::string::npos);
  CHECK(said.ends_with(std::to_string(cudaErrorSystemDriverMismatch) + " " +
                       std::to_string(cudaErrorSystemDriverMismatch) + " -1\n"));
}
