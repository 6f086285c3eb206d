// What tests do to the simulator while programs run: faults, delays, modes; and what they read from it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/catch.hpp"
#include "tests/unit/cudasim/child.hpp"

using namespace cudasim;
using namespace cudasim::testing;

namespace {

constexpr u64 kStep = kGranularity;

FolderOptions small_device() {
  FolderOptions options;
  options.device_bytes = {256u << 20};
  options.context_bytes = 0;
  return options;
}

CUresult create(Driver& driver) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  return SYM(driver, cuMemCreate)(&handle, kStep, &properties, 0);
}

// Answers each word with the code of one cuMemCreate.
void create_on_request(Driver& driver, Link& link) {
  MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
  while (link.receive() != ~u64{0})
    link.send(static_cast<u64>(create(driver)));
}

u64 ask(Child& child) {
  child.link().send(1);
  return child.link().receive();
}

}  // namespace

TEST_CASE("a fault fails the nth call of a running process, once, and has no effect on memory") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), create_on_request);
  CHECK(ask(child) == CUDA_SUCCESS);
  Fault fault;
  fault.code = CUDA_ERROR_OUT_OF_MEMORY;
  fault.first = 2;
  folder->set_fault("cuMemCreate", fault);
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(ask(child) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(folder->used_bytes(0) == 2 * kStep);
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(folder->calls("cuMemCreate") == 4);
  CHECK(folder->successes("cuMemCreate") == 3);
}

TEST_CASE("a fault can last for ever, and can be for one process only") {
  TemporaryFolder folder(small_device());
  Child one(folder.path(), create_on_request), other(folder.path(), create_on_request);
  Fault fault;
  fault.code = CUDA_ERROR_UNKNOWN;
  fault.count = Fault::kForEver;
  fault.pid = one.pid();
  folder->set_fault("cuMemCreate", fault);
  for (int i = 0; i < 3; i++)
    CHECK(ask(one) == CUDA_ERROR_UNKNOWN);
  CHECK(ask(other) == CUDA_SUCCESS);
  folder->clear_fault("cuMemCreate");
  CHECK(ask(one) == CUDA_SUCCESS);
  CHECK(folder->calls("cuMemCreate", one.pid()) == 4);
  CHECK(folder->calls("cuMemCreate", other.pid()) == 1);
}

TEST_CASE("a process can be killed before the effect of a call, or after it") {
  TemporaryFolder folder(small_device());
  folder->set_death_ms(600000, 600000);  // so that what the dead process had stays to be counted
  const bool after = GENERATE(false, true);
  Child child(folder.path(), create_on_request);
  Fault fault;
  (after ? fault.signal_after : fault.signal_before) = SIGKILL;
  folder->set_fault("cuMemCreate", fault);
  CHECK(ask(child) == ~u64{0});
  CHECK(child.wait() == -SIGKILL);
  CHECK(folder->used_bytes(0) == (after ? kStep : 0));
}

TEST_CASE("a virtual delay moves the virtual clock and takes no time") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), create_on_request);
  folder->set_delay("cuMemCreate", DelayKind::kVirtual, 3'600'000'000'000);
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(folder->folder().page().virtual_now_ns >= 3'600'000'000'000);
}

TEST_CASE("a sleeping delay is real time") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), create_on_request);
  folder->set_delay("cuMemCreate", GENERATE(DelayKind::kSleep, DelayKind::kSpin), 20'000'000);
  const u64 start = monotonic_ns();
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(monotonic_ns() - start >= 20'000'000);
}

TEST_CASE("the ring tells which driver calls a process made, with result and arguments") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), create_on_request);
  REQUIRE(ask(child) == CUDA_SUCCESS);
  const u64 position = folder->record_position();
  CHECK(folder->records(position).empty());  // "no driver call happened here"
  REQUIRE(ask(child) == CUDA_SUCCESS);
  const auto records = folder->records(position);
  REQUIRE(records.size() == 1);
  CHECK(records[0].function == "cuMemCreate");
  CHECK(records[0].pid == child.pid());
  CHECK(records[0].a == kStep);
  CHECK(records[0].result == CUDA_SUCCESS);
  CHECK(folder->calls_of(child.pid()) == 3);  // cuInit and two cuMemCreate
}

TEST_CASE("the ring keeps its last entries when more calls were made than it holds") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), [](Driver& driver, Link&) {
    int version = 0;
    for (u32 i = 0; i < kRingRecords + 100; i++)
      SYM(driver, cuDriverGetVersion)(&version);
    MUST(version == 13000);
    MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
  });
  REQUIRE(child.wait() == 0);
  const auto records = folder->records(0);
  REQUIRE(records.size() == kRingRecords);
  CHECK(records.back().function == "cuInit");
}

TEST_CASE("a sticky error set from outside fails every later call of that process, and of no other") {
  TemporaryFolder folder(small_device());
  auto body = [](Driver& driver, Link& link) {
    use_primary_context(driver);
    while (link.receive() != ~u64{0})
      link.send(static_cast<u64>(SYM(driver, cuCtxSynchronize)()));
  };
  Child one(folder.path(), body), other(folder.path(), body);
  CHECK(ask(one) == CUDA_SUCCESS);
  CHECK(ask(other) == CUDA_SUCCESS);
  folder->set_sticky(one.pid(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(ask(one) == CUDA_ERROR_ILLEGAL_ADDRESS);
  folder->set_sticky(one.pid(), 0);
  CHECK(ask(one) == CUDA_ERROR_ILLEGAL_ADDRESS);  // it stays
  CHECK(ask(other) == CUDA_SUCCESS);
}

TEST_CASE("a lost device fails calls until it is back") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), create_on_request);
  folder->set_lost(0, true);
  CHECK(ask(child) == CUDA_ERROR_DEVICE_UNAVAILABLE);
  folder->set_lost(0, false);
  CHECK(ask(child) == CUDA_SUCCESS);
}

TEST_CASE("an export table that is full refuses, and an allocation that ends makes room") {
  TemporaryFolder folder(small_device());
  folder->set_export_limit(2);
  Child child(folder.path(), [](Driver& driver, Link&) {
    CUmemGenericAllocationHandle handles[3];
    for (auto& handle : handles)
      handle = create_chunk(driver, kStep);
    const int fd = export_chunk(driver, handles[0]);
    ::close(export_chunk(driver, handles[0]));  // the same object again
    ::close(export_chunk(driver, handles[1]));
    int refused = -1;
    auto export_it = SYM(driver, cuMemExportToShareableHandle);
    MUST(export_it(&refused, handles[2], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
         CUDA_ERROR_OUT_OF_MEMORY);
    ::close(fd);
    MUST(SYM(driver, cuMemRelease)(handles[0]) == CUDA_SUCCESS);
    export_chunk(driver, handles[2]);
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("census counts as overlap what two processes map for data, and only that") {
  TemporaryFolder folder(small_device());
  auto body = [](Driver& driver, Link& link) {  // word 1: map what came; word 2: keep a handle only
    int fd = -1;
    for (u64 word = 0; (word = link.receive(&fd)) != ~u64{0};) {
      auto handle = import_chunk(driver, fd);
      ::close(fd);
      if (word == 1) map_chunk(driver, handle, kStep);
      link.send(1);
    }
  };
  Child maker(folder.path(), [](Driver& driver, Link& link) {
    for (int i = 0; i < 2; i++) {
      auto handle = create_chunk(driver, kStep);
      link.send(1, export_chunk(driver, handle));
    }
    link.receive();
  });
  Child one(folder.path(), body), other(folder.path(), body);
  int first = -1, second = -1;
  maker.link().receive(&first);
  maker.link().receive(&second);
  auto give = [](Child& child, u64 word, int fd) {
    child.link().send(word, fd);
    REQUIRE(child.link().receive() == 1);
  };
  give(one, 1, first);
  give(other, 1, second);
  give(other, 2, first);  // a handle is no mapping
  CHECK(folder->census().overlap_bytes == 0);
  give(other, 1, first);
  const CensusReport census = folder->census();
  CHECK(census.overlap_bytes == kStep);
  CHECK(to_json(census).find("\"overlap_bytes\":2097152") != std::string::npos);
  const auto shared = std::find_if(census.allocations.begin(), census.allocations.end(),
                                   [](const AllocationInfo& info) { return info.mapped_by.size() == 2; });
  REQUIRE(shared != census.allocations.end());
  CHECK(shared->creator_pid == maker.pid());
  ::close(first);
  ::close(second);
}

TEST_CASE("in dirty mode fresh memory shows what a killed process of another size left there") {
  FolderOptions options = small_device();
  options.dirty = true;
  TemporaryFolder folder(options);
  {
    Child owner(folder.path(), [](Driver& driver, Link& link) {
      use_primary_context(driver);
      put_word(driver, map_chunk(driver, create_chunk(driver, 2 * kStep), 2 * kStep), 0x5ec2e7);
      link.send(1);
      link.receive();
    });
    REQUIRE(owner.link().receive() == 1);
  }
  REQUIRE(folder->wait_no_references(20000));
  Child next(folder.path(), [](Driver& driver, Link& link) {
    use_primary_context(driver);
    const CUdeviceptr used = map_chunk(driver, create_chunk(driver, kStep), kStep);
    const CUdeviceptr fresh = map_chunk(driver, create_chunk(driver, kStep), kStep);
    link.send(get_word(driver, used));
    link.send(get_word(driver, fresh));
  });
  CHECK(next.link().receive() == 0x5ec2e7);
  CHECK(next.link().receive() == 0xcacacacacacacaca);
}

TEST_CASE("a host read of device memory faults in strict mode") {
  FolderOptions options = small_device();
  options.strict = GENERATE(true, false);
  TemporaryFolder folder(options);
  Child child(folder.path(), [](Driver& driver, Link&) {
    const CUdeviceptr address = map_chunk(driver, create_chunk(driver, kStep), kStep);
    ::signal(SIGSEGV, SIG_DFL);
    std::exit(*reinterpret_cast<volatile int*>(address) == 0 ? 7 : 8);
  });
  CHECK(child.wait() == (options.strict ? -SIGSEGV : 7));
}

TEST_CASE("a double release aborts in strict mode and is refused otherwise") {
  FolderOptions options = small_device();
  options.strict = GENERATE(true, false);
  TemporaryFolder folder(options);
  Child child(folder.path(), [](Driver& driver, Link&) {
    ::signal(SIGABRT, SIG_DFL);
    auto handle = create_chunk(driver, kStep);
    MUST(SYM(driver, cuMemRelease)(handle) == CUDA_SUCCESS);
    MUST(SYM(driver, cuMemRelease)(handle) == CUDA_ERROR_INVALID_VALUE);
  });
  CHECK(child.wait() == (options.strict ? -SIGABRT : 0));
  CHECK(folder->violations() == (options.strict ? 1 : 0));
}

TEST_CASE("cudasim-ctl shows the census, sets faults, and refuses what it cannot read") {
  TemporaryFolder folder(small_device());
  Child child(folder.path(), create_on_request);
  auto ctl = [&](const std::string& arguments, std::string* output = nullptr) {
    const std::string command =
        "CUDASIM_DIR=" + folder.path() + " " CUDASIM_CTL " " + arguments + " 2>/dev/null";
    FILE* pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char line[8192] = "";
    while (std::fgets(line, sizeof line, pipe))
      if (output) *output += line;
    return WEXITSTATUS(::pclose(pipe));
  };
  std::string census, calls;
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(ctl("census", &census) == 0);
  CHECK(census.find("\"physical_bytes\":2097152,\"referenced_bytes\":2097152,\"overlap_bytes\":0}\n") !=
        std::string::npos);
  CHECK(ctl("fault cuMemCreate 2 2 1") == 0);
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(ask(child) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(ask(child) == CUDA_SUCCESS);
  CHECK(ctl("calls cuMemCreate", &calls) == 0);
  CHECK(calls == "4\n");
  CHECK(ctl("stranger 0 256MiB") == 0);
  CHECK(ask(child) == CUDA_ERROR_OUT_OF_MEMORY);
  for (const char* wrong : {"", "sensus", "fault cuMemCreate", "fault cuMemCreate two",
                            "fault cuMemCreate 2 0", "stranger 0 lots", "lost 0 maybe", "census now"})
    CHECK(ctl(wrong) == 2);
  for (const char* absent : {"lost 7 1", "lost x 1"})
    CHECK(ctl(absent) == 1);
}
