#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int driver_check(const struct driver* driver, CUresult result, const char* call) {
  const char* name = NULL;
  if (result == CUDA_SUCCESS) return 0;
  if (driver->get_error_name(result, &name) != CUDA_SUCCESS) name = "an error without a name";
  fprintf(stderr, "%s: %s (%d)\n", call, name, (int)result);
  return -1;
}

/* A function pointer in C may not be cast from void*; its bytes may be copied. */
static int find(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "the CUDA driver has no %s\n", name);
    return -1;
  }
  memcpy(function, &symbol, sizeof symbol);
  return 0;
}

static int load(struct driver* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return -1;
  }
  const struct {
    const char* name;
    void* function;
  } all[] = {
      {"cuInit", &driver->init},
      {"cuGetErrorName", &driver->get_error_name},
      {"cuDeviceGetCount", &driver->device_count},
      {"cuDeviceGet", &driver->device},
      {"cuDeviceGetUuid_v2", &driver->device_uuid},
      {"cuDevicePrimaryCtxRetain", &driver->context_retain},
      {"cuDevicePrimaryCtxRelease_v2", &driver->context_release},
      {"cuCtxSetCurrent", &driver->context_set},
      {"cuMemsetD32_v2", &driver->memset_d32},
      {"cuMemcpyHtoD_v2", &driver->copy_to_device},
      {"cuMemcpyDtoH_v2", &driver->copy_to_host},
      {"cuMemcpyHtoDAsync_v2", &driver->copy_to_device_async},
      {"cuMemcpyDtoDAsync_v2", &driver->copy_on_device_async},
      {"cuMemcpyDtoHAsync_v2", &driver->copy_to_host_async},
      {"cuStreamCreate", &driver->stream_create},
      {"cuStreamSynchronize", &driver->stream_synchronize},
      {"cuStreamDestroy_v2", &driver->stream_destroy},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (find(library, all[i].name, all[i].function) != 0) return -1;
  return 0;
}

/* The sixteen bytes as 8-4-4-4-12 hexadecimal digits, as they follow "GPU-" or "MIG-". */
static void spell_uuid(const CUuuid* uuid, char text[40]) {
  char* at = text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    at += sprintf(at, "%02x", (unsigned)(unsigned char)uuid->bytes[i]);
  }
}

int driver_open(struct driver* driver, const char* device_uuid) {
  int count = 0;
  if (load(driver) != 0) return -1;
  if (driver_check(driver, driver->init(0), "cuInit") != 0) return -1;
  if (driver_check(driver, driver->device_count(&count), "cuDeviceGetCount") != 0) return -1;
  for (int i = 0; i < count; ++i) {
    CUcontext context = NULL;
    CUuuid uuid;
    char text[40];
    if (driver_check(driver, driver->device(&driver->chosen, i), "cuDeviceGet") != 0) return -1;
    if (driver_check(driver, driver->device_uuid(&uuid, driver->chosen), "cuDeviceGetUuid") != 0) return -1;
    spell_uuid(&uuid, text);
    if (strlen(device_uuid) < 4 || strcmp(text, device_uuid + 4) != 0) continue;
    if (driver_check(driver, driver->context_retain(&context, driver->chosen), "cuDevicePrimaryCtxRetain") !=
        0)
      return -1;
    if (driver_check(driver, driver->context_set(context), "cuCtxSetCurrent") == 0) return 0;
    driver->context_release(driver->chosen);
    return -1;
  }
  fprintf(stderr, "the driver shows no device %s\n", device_uuid);
  return -1;
}

void driver_close(struct driver* driver) {
  driver->context_set(NULL);
  driver->context_release(driver->chosen);
}
