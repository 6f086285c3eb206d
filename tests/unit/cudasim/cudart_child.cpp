// cudart_child DRIVER RUNTIME: loads both in this order and prints what cudaGetDeviceCount answers.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3 || ::dlopen(argv[1], RTLD_NOW) == nullptr) return 2;
  void* runtime = ::dlopen(argv[2], RTLD_NOW);
  if (runtime == nullptr) return 2;
  const auto count = reinterpret_cast<decltype(&cudaGetDeviceCount)>(::dlsym(runtime, "cudaGetDeviceCount"));
  const auto last = reinterpret_cast<decltype(&cudaGetLastError)>(::dlsym(runtime, "cudaGetLastError"));
  int devices = -1;
  const cudaError_t error = count(&devices);
  std::printf("%d %d %d\n", static_cast<int>(error), static_cast<int>(last()), devices);
  return 0;
}
