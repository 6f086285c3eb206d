// Death is slow, capacity is exact, and nothing that is killed anywhere changes either.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/support/catch.hpp"
#include "tests/unit/cudasim/child.hpp"

using namespace cudasim;
using namespace cudasim::testing;

namespace {

constexpr u64 kStep = kGranularity;
constexpr int kPatience = 20000;  // ms

FolderOptions device_of(u64 bytes) {
  FolderOptions options;
  options.device_bytes = {bytes};
  options.context_bytes = 0;
  return options;
}

CUresult try_create(Driver& driver, CUmemGenericAllocationHandle& handle) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return SYM(driver, cuMemCreate)(&handle, kStep, &properties, 0);
}

void hold_one(Driver& driver, Link& link) {
  create_chunk(driver, kStep);
  link.send(1);
  link.receive();
}

u64 seed() {
  const char* text = std::getenv("APPORTION_SEED");
  const u64 value = text ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(value));
  return value;
}

}  // namespace

TEST_CASE("a killed process's memory comes back after the delay, and not before") {
  TemporaryFolder folder(device_of(64u << 20));
  folder->set_death_ms(300, 300);
  Child child(folder.path(), hold_one);
  REQUIRE(child.link().receive() == 1);
  child.kill();
  const u64 start = monotonic_ns();
  CHECK(folder->used_bytes(0) == kStep);
  CHECK(folder->census().processes.at(0).dying);
  CHECK(folder->wait_used(0, 0, kPatience));
  CHECK(monotonic_ns() - start >= 300u * 1000000);
}

TEST_CASE("while a dead process's memory is on its way back, a full device refuses") {
  TemporaryFolder folder(device_of(32u << 20));
  folder->set_death_ms(200, 200);
  Child holder(folder.path(), [](Driver& driver, Link& link) {
    for (u64 i = 0; i < (32u << 20) / kStep; i++)
      create_chunk(driver, kStep);
    link.send(1);
    link.receive();
  });
  REQUIRE(holder.link().receive() == 1);
  Child next(folder.path(), [](Driver& driver, Link& link) {
    CUmemGenericAllocationHandle handle = 0;
    link.receive();
    MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
    MUST(try_create(driver, handle) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(Control::wait([&] { return try_create(driver, handle) == CUDA_SUCCESS; }, kPatience));
  });
  holder.kill();
  next.link().send(1);
  CHECK(next.wait() == 0);
}

TEST_CASE("a process that ends by itself gives its memory back without the delay") {
  TemporaryFolder folder(device_of(64u << 20));
  folder->set_death_ms(600000, 600000);
  Child child(folder.path(), [](Driver& driver, Link&) { create_chunk(driver, kStep); });
  REQUIRE(child.wait() == 0);
  CHECK(folder->used_bytes(0) == 0);
}

TEST_CASE("processes that create at once fill a device exactly") {
  constexpr u64 kDevice = 256u << 20;
  TemporaryFolder folder(device_of(kDevice));
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 4; i++)
    children.push_back(std::make_unique<Child>(folder.path(), [](Driver& driver, Link& link) {
      CUmemGenericAllocationHandle handle = 0;
      u64 made = 0;
      MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
      link.receive();
      while (try_create(driver, handle) == CUDA_SUCCESS)
        made++;
      link.send(made);
      link.receive();
    }));
  for (auto& child : children)
    child->link().send(1);
  u64 made = 0;
  for (auto& child : children)
    made += child->link().receive();
  CHECK(made * kStep == kDevice);
  const CensusReport census = folder->census();
  CHECK(census.devices.at(0).used_bytes == kDevice);
  CHECK(census.referenced_bytes == kDevice);
}

TEST_CASE("threads of one process create and release without losing a byte") {
  TemporaryFolder folder(device_of(64u << 20));
  Child child(folder.path(), [](Driver& driver, Link&) {
    MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; t++)
      threads.emplace_back([&] {
        for (int i = 0; i < 300; i++) {
          CUmemGenericAllocationHandle handle = 0;
          const CUresult result = try_create(driver, handle);
          MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
          if (result == CUDA_SUCCESS) MUST(SYM(driver, cuMemRelease)(handle) == CUDA_SUCCESS);
        }
      });
    for (auto& thread : threads)
      thread.join();
    CUmemGenericAllocationHandle handle = 0;
    for (u64 i = 0; i < (64u << 20) / kStep; i++)
      MUST(try_create(driver, handle) == CUDA_SUCCESS);
    MUST(try_create(driver, handle) == CUDA_ERROR_OUT_OF_MEMORY);
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("memory taken by a stranger is not free, and comes back") {
  TemporaryFolder folder(device_of(32u << 20));
  folder->set_stranger_bytes(0, (32u << 20) - kStep);
  Child child(folder.path(), [](Driver& driver, Link& link) {
    CUmemGenericAllocationHandle handle = 0;
    create_chunk(driver, kStep);
    MUST(try_create(driver, handle) == CUDA_ERROR_OUT_OF_MEMORY);
    link.send(1);
    link.receive();
    MUST(try_create(driver, handle) == CUDA_SUCCESS);
  });
  REQUIRE(child.link().receive() == 1);
  folder->set_stranger_bytes(0, 0);
  child.link().send(1);
  CHECK(child.wait() == 0);
}

// Invariant (a): after any kill, physical bytes are exactly the bytes with a live reference. Each round kills
// processes before or after the effect of a random call of a random function.
TEST_CASE("wherever processes are killed, physical bytes equal referenced bytes") {
  std::mt19937_64 random(seed());
  TemporaryFolder folder(device_of(512u << 20));
  folder->set_death_ms(0, 20);
  const char* functions[] = {"cuMemCreate",         "cuMemExportToShareableHandle",
                             "cuMemAddressReserve", "cuMemMap",
                             "cuMemSetAccess",      "cuMemRelease",
                             "cuMemUnmap"};
  const char* long_run = std::getenv("APPORTION_LONG");
  const int rounds = long_run ? 300 : 25;
  for (int round = 0; round < rounds; round++) {
    folder->clear_faults();
    Fault fault;
    fault.first = 1 + random() % 6;
    (random() % 2 ? fault.signal_before : fault.signal_after) = SIGKILL;
    folder->set_fault(functions[random() % std::size(functions)], fault);
    Child survivor(folder.path(), [](Driver& driver, Link& link) {  // imports, and keeps what it imported
      int fd = -1;
      MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
      while (link.receive(&fd) != ~u64{0}) {
        import_chunk(driver, fd);
        ::close(fd);
        link.send(1);
      }
    });
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 2; i++)
      children.push_back(std::make_unique<Child>(folder.path(), [](Driver& driver, Link& link) {
        for (int step = 0; step < 4; step++) {
          auto handle = create_chunk(driver, kStep);
          const int fd = export_chunk(driver, handle);
          const CUdeviceptr address = map_chunk(driver, handle, kStep);
          link.send(1, fd);
          MUST(SYM(driver, cuMemRelease)(handle) == CUDA_SUCCESS);
          if (step % 2) MUST(SYM(driver, cuMemUnmap)(address, kStep) == CUDA_SUCCESS);
          ::close(fd);
        }
        link.receive();
      }));
    for (auto& child : children) {
      int fd = -1;
      for (int step = 0; step < 4 && child->link().receive(&fd) != ~u64{0}; step++) {
        survivor.link().send(1, fd);
        ::close(fd);
        REQUIRE(survivor.link().receive() == 1);
      }
    }
    for (auto& child : children)
      if (random() % 2) child->kill();
    REQUIRE(Control::wait(
        [&] {
          const CensusReport census = folder->census();
          const bool dying = std::any_of(census.processes.begin(), census.processes.end(),
                                         [](const ProcessInfo& process) { return process.dying; });
          return !dying && census.physical_bytes == census.referenced_bytes &&
                 census.devices.at(0).used_bytes == census.referenced_bytes && census.overlap_bytes == 0;
        },
        kPatience));
  }
  folder->clear_faults();
  CHECK(folder->wait_no_references(kPatience));
  CHECK(folder->used_bytes(0) == 0);
}
