/* A C program that gets its device memory from Apportion.
 *
 *   example_c [JOB]      the job to join; without it the environment's APPORTION_JOB, else the config's
 *                        [jobs.default]
 *
 * It asks for more than it may have, reads why that was refused, settles for what is free, uses the memory,
 * gives it back, and leaves. Exit status 0 when all of that worked.
 */
#include <apportion/apportion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../common/driver.h"

enum { kWords = 1 << 18 }; /* 1 MiB of 32-bit words is written, copied back and compared */

static double gib(uint64_t bytes) {
  return (double)bytes / (1024.0 * 1024.0 * 1024.0);
}

static int fail(const char* what, apportion_status status) {
  fprintf(stderr, "example_c: %s: %s: %s\n", what, apportion_status_name(status), apportion_last_error());
  return 1;
}

static int show_info(apportion_client* client, apportion_info* info) {
  info->struct_size = sizeof *info;
  const apportion_status status = apportion_get_info(client, info);
  if (status != APPORTION_OK) return fail("info", status);
  printf("job %s on %s%s: told %.2f GiB, of it free %.2f GiB; guarantee %.2f GiB, limit %.2f GiB\n",
         info->job, info->device_name, info->simulated ? " (simulated)" : "", gib(info->total_bytes),
         gib(info->free_bytes), gib(info->guarantee_bytes), gib(info->limit_bytes));
  return 0;
}

enum { kSmallest = 1 << 20 }; /* bytes */

/* What a program does instead of preallocating: ask for what it would like, and settle for what is free. */
static apportion_status allocate_or_settle(apportion_client* client, size_t wish, size_t* got, void** block) {
  apportion_status status = apportion_allocate(client, wish, NULL, 0, block);
  *got = wish;
  if (status != APPORTION_QUOTA) return status;
  printf("refused: %s\n", apportion_last_error());
  apportion_info info = {.struct_size = sizeof info};
  status = apportion_get_info(client, &info);
  if (status != APPORTION_OK) return status;
  /* What this program is told is free; where others of the job have more than their part, ever smaller
   * batches. */
  *got = info.free_bytes > kSmallest ? (size_t)info.free_bytes : wish / 2;
  while ((status = apportion_allocate(client, *got, NULL, 0, block)) == APPORTION_QUOTA &&
         *got / 2 >= kSmallest)
    *got /= 2;
  return status;
}

/* Writes the first megabyte on the device two ways, and reads it back. */
static int use(const struct driver* driver, void* block) {
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)block;
  uint32_t* words = malloc(kWords * sizeof *words);
  int wrong = words == NULL;
  if (!wrong) {
    for (uint32_t i = 0; i < kWords; ++i)
      words[i] = i * 2654435761u;
    wrong = driver_check(driver, driver->copy_to_device(at, words, kWords * sizeof *words), "cuMemcpyHtoD") ||
            driver_check(driver, driver->memset_d32(at, 42, kWords / 2), "cuMemsetD32") ||
            driver_check(driver, driver->copy_to_host(words, at, kWords * sizeof *words), "cuMemcpyDtoH");
  }
  for (uint32_t i = 0; i < kWords && !wrong; ++i)
    wrong = words[i] != (i < kWords / 2 ? 42 : i * 2654435761u);
  free(words);
  printf("memory: %s\n", wrong ? "not what was written" : "as written");
  return wrong ? 1 : 0;
}

static int work(apportion_client* client) {
  apportion_info info;
  struct driver driver;
  if (show_info(client, &info) != 0) return 1;
  if (driver_open(&driver, info.device_uuid) != 0) return 1;

  void* block = NULL;
  size_t got = 0;
  apportion_status status = allocate_or_settle(client, (size_t)info.limit_bytes + 1, &got, &block);
  if (status != APPORTION_OK) return fail("allocate", status);
  printf("got %.2f GiB\n", gib(got));

  int code = use(&driver, block);
  if ((status = apportion_deallocate(client, block, NULL)) != APPORTION_OK) code = fail("deallocate", status);
  size_t returned = 0; /* until here the chunks stay with this process, for its next allocation */
  if ((status = apportion_trim_to(client, 0, &returned)) != APPORTION_OK) code = fail("trim", status);
  printf("gave back %.2f GiB\n", gib(returned));
  driver_close(&driver);
  return code;
}

int main(int argc, char** argv) {
  apportion_attach_options options = {.struct_size = sizeof options, .label = "example in C"};
  if (argc > 1) options.job = argv[1];
  apportion_client* client = NULL;
  apportion_status status = apportion_attach(&options, &client);
  if (status != APPORTION_OK) return fail("attach", status);
  int code = work(client);
  if ((status = apportion_detach(client)) != APPORTION_OK) code = fail("detach", status);
  return code;
}
