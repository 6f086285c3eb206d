#include "cudasim/driver/module.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cudasim/driver/call.hpp"

namespace cudasim {
namespace {

struct Image;

// A CUfunction and a CUkernel are the same thing here, as programs may cast one to the other.
struct Kernel {
  std::string name;
  Image* image;
  std::map<int, int> attributes;
};

// A CUmodule and a CUlibrary.
struct Image {
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

// What has been loaded, by handle. Thread-safe.
class Loaded {
 public:
  static Loaded& get() {
    static auto* loaded = new Loaded;
    return *loaded;
  }

  Image* load() {
    const std::lock_guard lock(mutex_);
    auto image = std::make_unique<Image>();
    Image* handle = image.get();
    images_.emplace(handle, std::move(image));
    return handle;
  }
  CUresult unload(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = images_.find(handle);
    if (found == images_.end()) return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& [name, kernel] : found->second->kernels)
      kernels_.erase(kernel.get());
    images_.erase(found);
    return CUDA_SUCCESS;
  }
  CUresult kernel(const void* handle, const char* name, Kernel*& out) {
    if (name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(mutex_);
    const auto found = images_.find(handle);
    if (found == images_.end()) return CUDA_ERROR_INVALID_HANDLE;
    auto& kernel = found->second->kernels[name];
    if (kernel == nullptr) {
      kernel = std::make_unique<Kernel>(Kernel{name, found->second.get(), {}});
      kernels_.emplace(kernel.get(), kernel.get());
    }
    out = kernel.get();
    return CUDA_SUCCESS;
  }
  Kernel* find(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(handle);
    return found == kernels_.end() ? nullptr : found->second;
  }
  bool image(const void* handle) {
    const std::lock_guard lock(mutex_);
    return images_.contains(handle);
  }
  // As an A100 answers for a small kernel.
  CUresult attribute(const void* handle, CUfunction_attribute which, int* value) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(handle);
    if (found == kernels_.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (value == nullptr || which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    const auto set = found->second->attributes.find(which);
    if (set != found->second->attributes.end()) {
      *value = set->second;
      return CUDA_SUCCESS;
    }
    switch (which) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 80;
        break;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = 48 << 10;
        break;
      default:
        *value = 0;
    }
    return CUDA_SUCCESS;
  }
  CUresult set_attribute(const void* handle, CUfunction_attribute which, int value) {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(handle);
    if (found == kernels_.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (which < 0 || which >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    found->second->attributes[which] = value;
    return CUDA_SUCCESS;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Image>> images_;
  std::unordered_map<const void*, Kernel*> kernels_;
};

template <typename Handle>
CUresult load(Handle* out, const void* code) {
  if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<Handle>(Loaded::get().load());
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult find_kernel(Handle* out, const void* image, const char* name) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  const CUresult result = Loaded::get().kernel(image, name, kernel);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<Handle>(kernel);
  return result;
}

// Gives `value(kernel)` for a kernel that exists.
template <typename Out, typename Value>
CUresult of_kernel(Out* out, const void* handle, Value value) {
  const Kernel* kernel = Loaded::get().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = value(*kernel);
  return CUDA_SUCCESS;
}

CUresult occupancy(int* blocks, const void* function, int block_size) {
  if (Loaded::get().find(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = block_size > 1024 ? 0 : 2048 / block_size;
  return CUDA_SUCCESS;
}

}  // namespace

bool is_function(const void* handle) {
  return Loaded::get().find(handle) != nullptr;
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  CUDASIM_CALL(cuModuleLoadData, Needs::kContext);
  return call.done(load(module, image));
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  CUDASIM_CALL(cuModuleLoadDataEx, Needs::kContext);
  return call.done(load(module, image));
}
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  CUDASIM_CALL(cuModuleLoadFatBinary, Needs::kContext);
  return call.done(load(module, image));
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  CUDASIM_CALL(cuModuleUnload, Needs::kContext, module);
  return call.done(Loaded::get().unload(module));
}
CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  CUDASIM_CALL(cuModuleGetLoadingMode, Needs::kInit);
  if (mode == nullptr) return call.done(CUDA_ERROR_INVALID_VALUE);
  *mode = CU_MODULE_LAZY_LOADING;
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUDASIM_CALL(cuModuleGetFunction, Needs::kContext, module);
  return call.done(find_kernel(function, module, name));
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                                   CUlibraryOption*, void**, unsigned) {
  CUDASIM_CALL(cuLibraryLoadData, Needs::kDriver);
  return call.done(load(library, code));
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  CUDASIM_CALL(cuLibraryUnload, Needs::kDriver, library);
  return call.done(Loaded::get().unload(library));
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  CUDASIM_CALL(cuLibraryGetKernel, Needs::kDriver, library);
  return call.done(find_kernel(kernel, library, name));
}
CUresult CUDAAPI cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  CUDASIM_CALL(cuLibraryGetModule, Needs::kContext, library);
  if (module == nullptr) return call.done(CUDA_ERROR_INVALID_VALUE);
  if (!Loaded::get().image(library)) return call.done(CUDA_ERROR_INVALID_HANDLE);
  *module = reinterpret_cast<CUmodule>(library);
  return call.done(CUDA_SUCCESS);
}
CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  CUDASIM_CALL(cuKernelGetFunction, Needs::kContext, kernel);
  return call.done(
      of_kernel(function, kernel, [&](const Kernel&) { return reinterpret_cast<CUfunction>(kernel); }));
}
CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  CUDASIM_CALL(cuKernelGetLibrary, Needs::kDriver, kernel);
  return call.done(
      of_kernel(library, kernel, [](const Kernel& k) { return reinterpret_cast<CUlibrary>(k.image); }));
}
CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel kernel) {
  CUDASIM_CALL(cuKernelGetName, Needs::kDriver, kernel);
  return call.done(of_kernel(name, kernel, [](const Kernel& k) { return k.name.c_str(); }));
}
CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel kernel, CUdevice) {
  CUDASIM_CALL(cuKernelGetAttribute, Needs::kDriver, which, kernel);
  return call.done(Loaded::get().attribute(kernel, which, value));
}
CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice) {
  CUDASIM_CALL(cuKernelSetAttribute, Needs::kDriver, which, kernel);
  return call.done(Loaded::get().set_attribute(kernel, which, value));
}
CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice) {
  CUDASIM_CALL(cuKernelSetCacheConfig, Needs::kDriver, kernel);
  return call.done(is_function(kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  CUDASIM_CALL(cuFuncGetAttribute, Needs::kContext, which, function);
  return call.done(Loaded::get().attribute(function, which, value));
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  CUDASIM_CALL(cuFuncSetAttribute, Needs::kContext, function, which);
  return call.done(Loaded::get().set_attribute(function, which, value));
}
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  CUDASIM_CALL(cuFuncSetCacheConfig, Needs::kContext, function);
  return call.done(is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
  CUDASIM_CALL(cuFuncGetModule, Needs::kContext, function);
  return call.done(
      of_kernel(module, function, [](const Kernel& k) { return reinterpret_cast<CUmodule>(k.image); }));
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
  CUDASIM_CALL(cuFuncGetName, Needs::kContext, function);
  return call.done(of_kernel(name, function, [](const Kernel& k) { return k.name.c_str(); }));
}
CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  CUDASIM_CALL(cuFuncLoad, Needs::kContext, function);
  return call.done(is_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  CUDASIM_CALL(cuFuncIsLoaded, Needs::kContext, function);
  return call.done(
      of_kernel(state, function, [](const Kernel&) { return CU_FUNCTION_LOADING_STATE_LOADED; }));
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block,
                                                             size_t) {
  CUDASIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, Needs::kContext, function, block);
  return call.done(occupancy(blocks, function, block));
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                      int block, size_t, unsigned) {
  CUDASIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, Needs::kContext, function, block);
  return call.done(occupancy(blocks, function, block));
}

}  // extern "C"
