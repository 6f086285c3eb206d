/* A C program outside the tree: joins the job of APPORTION_JOB, takes half of it, and gives it back. */
#include <apportion/apportion.h>
#include <stdio.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, apportion_last_error());
  return 1;
}

int main(void) {
  apportion_client* client = NULL;
  apportion_info info = {0};
  void* block = NULL;
  info.struct_size = sizeof info;
  if (apportion_attach(NULL, &client) != APPORTION_OK) return fail("attach");
  if (apportion_get_info(client, &info) != APPORTION_OK) return fail("info");
  if (apportion_allocate(client, (size_t)(info.total_bytes / 2), NULL, 0, &block) != APPORTION_OK)
    return fail("allocate");
  if (apportion_deallocate(client, block, NULL) != APPORTION_OK) return fail("deallocate");
  if (apportion_detach(client) != APPORTION_OK) return fail("detach");
  printf("%s %s %s %llu\n", apportion_version(), info.job, info.simulated ? "simulated" : "real",
         (unsigned long long)info.total_bytes);
  return 0;
}
