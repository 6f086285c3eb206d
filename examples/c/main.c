/* Joins a job, plans with what it is told, takes memory, gives it back. See README.md. */
#include <apportion/apportion.h>
#include <inttypes.h>
#include <stdio.h>

static int failed(const char* what) {
  fprintf(stderr, "example_c: %s: %s\n", what, apportion_last_error());
  return 1;
}

int main(int argc, char** argv) {
  apportion_attach_options options = {0};
  options.struct_size = sizeof options;
  options.job = argc > 1 ? argv[1] : NULL;
  apportion_client* client = NULL;
  if (apportion_attach(&options, &client) != APPORTION_OK) return failed("cannot attach");

  apportion_info info = {0};
  info.struct_size = sizeof info;
  if (apportion_get_info(client, &info) != APPORTION_OK) return failed("cannot read the job's quota");
  printf("job %s on %s%s: told %" PRIu64 " MiB, free %" PRIu64 " MiB\n", info.job, info.device_name,
         info.simulated ? " (simulated)" : "", info.total_bytes >> 20, info.free_bytes >> 20);

  /* A quarter of what is free, as one block, on the default stream. */
  size_t bytes = (size_t)(info.free_bytes / 4);
  void* block = NULL;
  if (apportion_allocate(client, bytes, NULL, 0, &block) != APPORTION_OK) return failed("cannot allocate");
  printf("got %zu MiB\n", bytes >> 20);

  /* ... kernels would use `block` here, as they would memory of cudaMalloc ... */

  if (apportion_deallocate(client, block, NULL) != APPORTION_OK) return failed("cannot free");
  size_t returned = 0;
  if (apportion_trim_to(client, 0, &returned) != APPORTION_OK) return failed("cannot trim");
  printf("gave back %zu MiB\n", returned >> 20);
  if (apportion_detach(client) != APPORTION_OK) return failed("cannot detach");
  return 0;
}
