// Counts, and leaves the work to the C library. `operator new` comes here through malloc.
#include "bench/host_memory.hpp"

#include <atomic>
#include <cstddef>

namespace {
constinit std::atomic<std::uint64_t> calls{0};
void count() noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

namespace apportion::bench {

std::uint64_t host_allocations() noexcept {
  return calls.load(std::memory_order_relaxed);
}

}  // namespace apportion::bench

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

// Visible, so that libraries find them before the C library's.
#define APPORTION_REPLACES __attribute__((visibility("default")))

APPORTION_REPLACES void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
APPORTION_REPLACES void* calloc(std::size_t number, std::size_t bytes) {
  count();
  return __libc_calloc(number, bytes);
}
APPORTION_REPLACES void* realloc(void* memory, std::size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
APPORTION_REPLACES void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
}
