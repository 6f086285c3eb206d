// What nvcc's output registers before main, and launches. The driver loads an image when a kernel of it is
// first wanted: nothing here makes a driver call before main. Kernels do nothing on the simulated driver.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cudasim/cudart/runtime.hpp"

using namespace cudasim::cudart;

namespace {

// The device code of one translation unit.
struct Image {
  void* code;
  CUlibrary library = nullptr;  // once a kernel of it was wanted
};

struct Function {
  Image* image;
  std::string name;  // as the device code has it
};

// Never destroyed: nvcc's output unregisters in an atexit handler.
struct Registered {
  std::mutex mutex;
  std::map<void**, std::unique_ptr<Image>> images;
  std::map<const void*, Function> functions;  // by the host function that stands for the kernel
};
Registered& registered() {
  static auto* all = new Registered;
  return *all;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  CUstream stream;
};
thread_local std::vector<Configuration> configurations;  // pushed by <<<>>>, popped by the kernel's stub

CUresult loaded(const Driver& driver, Image& image) {
  if (image.library != nullptr) return CUDA_SUCCESS;
  return driver.cuLibraryLoadData(&image.library, image.code, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

cudaError_t find_kernel(const Driver& driver, const void* host_function, CUkernel& kernel) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto found = all.functions.find(host_function);
  if (found == all.functions.end()) return cudaErrorInvalidDeviceFunction;
  const Function& function = found->second;
  if (const CUresult r = loaded(driver, *function.image); r != CUDA_SUCCESS) return as_runtime(r);
  return as_runtime(driver.cuLibraryGetKernel(&kernel, function.image->library, function.name.c_str()));
}

cudaError_t launch(const Driver& driver, CUkernel kernel, dim3 grid, dim3 block, void** arguments,
                   size_t shared_bytes, cudaStream_t stream) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
    return cudaErrorInvalidConfiguration;
  CUfunction function = nullptr;
  if (const CUresult r = driver.cuKernelGetFunction(&function, kernel); r != CUDA_SUCCESS)
    return as_runtime(r);
  return as_runtime(driver.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                          static_cast<unsigned>(shared_bytes), stream, arguments, nullptr));
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* code) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  auto image = std::make_unique<Image>(Image{code});
  auto** handle = reinterpret_cast<void**>(image.get());
  all.images.emplace(handle, std::move(image));
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}

// At exit, or when a library with device code goes.
void __cudaUnregisterFatBinary(void** handle) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto image = all.images.find(handle);
  if (image == all.images.end()) return;
  const Driver* driver = nullptr;
  if (image->second->library != nullptr && find_driver(driver) == cudaSuccess)
    static_cast<void>(driver->cuLibraryUnload(image->second->library));
  std::erase_if(all.functions, [&](const auto& each) { return each.second.image == image->second.get(); });
  all.images.erase(image);
}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  if (const auto image = all.images.find(handle); image != all.images.end())
    all.functions.insert_or_assign(host_function, Function{image->second.get(), name});
}

// Device variables can be declared and used by kernels, which do nothing; there is no copying to and from
// them.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

char __cudaInitModule(void** handle) {
  const Driver* driver = nullptr;
  if (enter(driver) != cudaSuccess) return 0;
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto image = all.images.find(handle);
  return image != all.images.end() && loaded(*driver, *image->second) == CUDA_SUCCESS ? 1 : 0;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  const Driver* driver = nullptr;
  if (const cudaError_t error = enter(driver); error != cudaSuccess) return noted(error);
  CUkernel found = nullptr;
  if (const cudaError_t error = find_kernel(*driver, host_function, found); error != cudaSuccess)
    return noted(error);
  *kernel = found;
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return noted(cudaErrorInvalidConfiguration);
  const Configuration configuration = configurations.back();
  configurations.pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<CUstream*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  const Driver* driver = nullptr;
  if (const cudaError_t error = enter(driver); error != cudaSuccess) return noted(error);
  return noted(launch(*driver, kernel, grid, block, arguments, shared_bytes, stream));
}
cudaError_t cudaLaunchKernel(const void* host_function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  cudaKernel_t kernel = nullptr;
  if (const cudaError_t error = __cudaGetKernel(&kernel, host_function); error != cudaSuccess) return error;
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
