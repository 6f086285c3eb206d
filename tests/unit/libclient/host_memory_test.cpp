// The client when the host's memory runs out at any point of a growth, a move or a trim: what is handed out
// afterwards is mapped, and what is mapped is known.
#include <execinfo.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/unit/libclient/client_support.hpp"

using namespace apportion;
using namespace apportion::testing;

// A sanitizer's own allocator would be replaced.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace {

struct Image {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

Image driver_image() {
  Image found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        if (std::strstr(info->dlpi_name, "libcuda") == nullptr) return 0;
        for (int index = 0; index < info->dlpi_phnum; ++index) {
          const auto& header = info->dlpi_phdr[index];
          if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) continue;
          const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          *static_cast<Image*>(into) = {begin, begin + header.p_memsz};
        }
        return 1;
      },
      &found);
  return found;
}

thread_local int fail_after = -1;  // host allocations of this thread that still succeed; -1: all do
thread_local bool failed = false;
Image driver;

// The simulated driver takes memory where a real one would take its own.
bool inside_driver() {
  std::array<void*, 64> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int index = 0; index < count; ++index) {
    const auto at = reinterpret_cast<std::uintptr_t>(frames[static_cast<std::size_t>(index)]);
    if (at >= driver.begin && at < driver.end) return true;
  }
  return false;
}

bool host_is_full() {
  if (fail_after < 0 || failed) return false;
  const int left = std::exchange(fail_after, -1);  // backtrace may allocate
  const bool counts = !inside_driver();
  fail_after = counts ? left - 1 : left;
  failed = counts && left == 0;
  return failed;
}

// Lets the nth host allocation of this thread fail, once. Whether there were that many.
template <typename Call>
bool fails_nth(int nth, Call&& call) {
  failed = false;
  fail_after = nth;
  try {
    call();
  } catch (const std::bad_alloc&) {  // as the C API does
  }
  fail_after = -1;
  return failed;
}

// All that the session has mapped is leased to it, and what it hands out is mapped.
void check_sound(FakeBroker& broker, Client& client) {
  if (const Status checked = client.check(); !checked) FAIL(checked.error().message);
  CHECK(FakeBroker::kChunk * broker.leased() >= Bytes{client.stats()->pool_bytes});
  std::vector<Address> blocks;
  while (const Address block = client.try_allocate(2_MiB, 0))
    blocks.push_back(block);
  blocks.push_back(must_allocate(client, 8_MiB));
  for (const Address block : blocks) {
    CHECK(usable(block, 2_MiB));
    CHECK(client.deallocate(block, 0).ok());
  }
  CHECK(client.trim_to(0_B));
  CHECK(client.detach().ok());
}

template <typename Prepare, typename Call>
void each_allocation_fails(std::uint32_t part_chunks, Prepare&& prepare, Call&& call) {
  static_cast<void>(SimulatedDevice::instance());  // it loads the driver
  driver = driver_image();
  REQUIRE(driver.end != 0);
  int nth = 0;
  for (bool had = true; had; ++nth) {
    INFO("host allocation " << nth);
    FakeBroker broker(32);
    broker.part_chunks = part_chunks;
    auto client = attach(broker);
    prepare(*client);
    had = fails_nth(nth, [&] { call(*client); });
    check_sound(broker, *client);
  }
  CHECK(nth > 3);
}

// Two runs of idle chunks with a live block between them.
void two_idle_runs(Client& client) {
  const Address first = must_allocate(client, 4_MiB);
  must_allocate(client, 2_MiB);
  const Address last = must_allocate(client, 4_MiB);
  REQUIRE(client.deallocate(first, 0).ok());
  REQUIRE(client.deallocate(last, 0).ok());
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (host_is_full()) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

TEST_CASE("F31: whichever host allocation of a trim fails, what was unmapped is handed out no more") {
  each_allocation_fails(128, two_idle_runs,
                        [](Client& client) { static_cast<void>(client.trim_to(0_B).ok()); });
}

TEST_CASE("F31: whichever fails of a trim whose unmap fails too, the same holds") {
  each_allocation_fails(128, two_idle_runs, [](Client& client) {
    const Failing failing("cuMemUnmap", 999, 2);
    static_cast<void>(client.trim_to(0_B).ok());
  });
}

TEST_CASE("F31: whichever host allocation of a growth in parts fails, what is mapped is known") {
  each_allocation_fails(
      2, [](Client& client) { must_allocate(client, 1_KiB); },
      [](Client& client) { static_cast<void>(client.allocate(12_MiB, 0, false).ok()); });
}

TEST_CASE(
    "F31: whichever host allocation of a growth fails that moves idle chunks, what is mapped is known") {
  each_allocation_fails(128, two_idle_runs,
                        [](Client& client) { static_cast<void>(client.allocate(6_MiB, 0, false).ok()); });
}

#endif
