/* A libcuda.so.1 that is not the simulator: it answers every name, and counts nothing. */
#include <stddef.h>

static int no_device(void) {
  return 100; /* CUDA_ERROR_NO_DEVICE */
}

__attribute__((visibility("default"))) int cuGetProcAddress_v2(const char* name, void** out, int version,
                                                               unsigned long long flags, int* status);
int cuGetProcAddress_v2(const char* name, void** out, int version, unsigned long long flags, int* status) {
  (void)name, (void)version, (void)flags, (void)status;
  *out = (void*)(size_t)&no_device;
  return 0;
}
