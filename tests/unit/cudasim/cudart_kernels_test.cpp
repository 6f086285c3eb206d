// The stand-in runtime's half of what nvcc emits: registering device code, and launches as <<<>>> makes them.
#include "cudasim/cudart/cuda_runtime_api.hpp"
#include "tests/unit/cudasim/runtime.hpp"

using namespace cudasim::testing;

namespace {

constexpr std::size_t kBytes = 4096;
char code[64];        // the simulated driver does not look at it
void host_stub() {}   // stands for the kernel
void other_stub() {}  // of no kernel

const char* stub_address(void (*stub)()) {
  return reinterpret_cast<const char*>(stub);
}

// A translation unit with one kernel, as its constructor and its atexit handler make it known.
class Unit {
 public:
  Unit() : handle_(RUNTIME(__cudaRegisterFatBinary)(code)) {
    RUNTIME(__cudaRegisterFunction)
    (handle_, stub_address(host_stub), nullptr, "_Z5saxpy", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    RUNTIME(__cudaRegisterFatBinaryEnd)(handle_);
  }
  ~Unit() { RUNTIME(__cudaUnregisterFatBinary)(handle_); }
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;
  [[nodiscard]] void** handle() const { return handle_; }

 private:
  void** handle_;
};

}  // namespace

TEST_CASE("cudart: a launch is taken, and changes no memory") {
  const Unit unit;
  void* device = nullptr;
  REQUIRE(RUNTIME(cudaMalloc)(&device, kBytes) == cudaSuccess);
  REQUIRE(RUNTIME(cudaMemset)(device, 9, kBytes) == cudaSuccess);
  CHECK(RUNTIME(__cudaPushCallConfiguration)(dim3{4, 1, 1}, dim3{256, 1, 1}, 16, nullptr) == 0);
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  CUstream stream = reinterpret_cast<CUstream>(&stream);
  CHECK(RUNTIME(__cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &stream) == cudaSuccess);
  CHECK(grid.x == 4);
  CHECK(block.x == 256);
  CHECK(shared_bytes == 16);
  CHECK(stream == nullptr);
  cudaKernel_t kernel = nullptr;
  REQUIRE(RUNTIME(__cudaGetKernel)(&kernel, stub_address(host_stub)) == cudaSuccess);
  void* arguments[] = {&device};
  CHECK(RUNTIME(__cudaLaunchKernel)(kernel, grid, block, arguments, shared_bytes, stream) == cudaSuccess);
  CHECK(RUNTIME(cudaLaunchKernel)(stub_address(host_stub), grid, block, arguments, 0, nullptr) ==
        cudaSuccess);
  CHECK(RUNTIME(cudaDeviceSynchronize)() == cudaSuccess);
  std::vector<unsigned char> back(kBytes);
  CHECK(RUNTIME(cudaMemcpy)(back.data(), device, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(back == std::vector<unsigned char>(kBytes, 9));
  CHECK(RUNTIME(cudaFree)(device) == cudaSuccess);
}

TEST_CASE("cudart: what is no kernel, no grid or no longer registered is refused") {
  void* arguments[] = {nullptr};
  {
    const Unit unit;
    CHECK(RUNTIME(__cudaInitModule)(unit.handle()) == 1);
    CHECK(RUNTIME(cudaLaunchKernel)(stub_address(other_stub), dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0,
                                    nullptr) == cudaErrorInvalidDeviceFunction);
    CHECK(RUNTIME(cudaLaunchKernel)(stub_address(host_stub), dim3{0, 1, 1}, dim3{1, 1, 1}, arguments, 0,
                                    nullptr) == cudaErrorInvalidConfiguration);
    CHECK(RUNTIME(cudaGetLastError)() == cudaErrorInvalidConfiguration);
  }
  CHECK(RUNTIME(cudaLaunchKernel)(stub_address(host_stub), dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0,
                                  nullptr) == cudaErrorInvalidDeviceFunction);
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  CUstream stream = nullptr;
  CHECK(RUNTIME(__cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &stream) ==
        cudaErrorInvalidConfiguration);
  CHECK(RUNTIME(cudaGetLastError)() == cudaErrorInvalidConfiguration);
}
