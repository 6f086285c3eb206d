#include "tests/unit/cudasim/simulator.hpp"

#include <cstdlib>

#include "cudasim/scratch_folder.hpp"

namespace cudasim::testing {
namespace {

// The devices that every driver call of this program uses.
struct OwnDevices {
  ScratchFolder folder;
  OwnDevices() {
    ::setenv("CUDASIM_DIR", (folder.path() + "/devices").c_str(), 1);
    ::setenv("CUDASIM_DEVICES", "1GiB", 1);
    ::setenv("CUDASIM_CONTEXT", "16777216", 1);
    ::setenv("CUDASIM_FORCE", "1", 1);
  }
};

void* load(const char* path) {
  (void)device_folder();
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) FAIL(::dlerror());
  return library;
}

}  // namespace

const std::string& device_folder() {
  static const OwnDevices devices;
  return devices.folder.path();
}

void* driver_library() {
  static void* library = load(CUDASIM_LIBCUDA);
  return library;
}

void* nvml_library() {
  static void* library = load(CUDASIM_LIBNVML);
  return library;
}

void* symbol_of(void* library, const char* name) {
  void* address = ::dlsym(library, name);
  if (address == nullptr) FAIL(name << " is not exported");
  return address;
}

CUcontext use_context() {
  static CUcontext context = [] {
    REQUIRE(DRIVER(cuInit)(0) == CUDA_SUCCESS);
    CUcontext made = nullptr;
    REQUIRE(DRIVER(cuDevicePrimaryCtxRetain)(&made, 0) == CUDA_SUCCESS);
    return made;
  }();
  REQUIRE(DRIVER(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  return context;
}

}  // namespace cudasim::testing
