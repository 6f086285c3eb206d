// A violation is counted and named in the ring; where a run must have none, it ends the process that caused
// it.
#include <signal.h>

#include <algorithm>

#include "tests/support/catch.hpp"
#include "tests/unit/cudasim/child.hpp"

using namespace cudasim;
using namespace cudasim::testing;

namespace {

void unmap_under_memset(Driver& driver, Link&) {
  ::signal(SIGABRT, SIG_DFL);  // not the test framework's
  use_primary_context(driver);
  const auto handle = create_chunk(driver, kGranularity);
  const CUdeviceptr address = map_chunk(driver, handle, kGranularity);
  MUST(SYM(driver, cuMemsetD8)(address, 1, 64) == CUDA_SUCCESS);
  MUST(SYM(driver, cuMemUnmap)(address, kGranularity) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("a violation is counted, and recorded with its place and its call") {
  TemporaryFolder folder;
  Child child(folder.path(), unmap_under_memset);
  CHECK(child.wait() == 0);
  CHECK(folder->violations() == 1);
  const auto records = folder->records(0);
  const auto found = std::ranges::find(records, RecordKind::kViolation,
                                       [](const CallRecord& record) { return record.kind; });
  REQUIRE(found != records.end());
  CHECK(found->text == "unmapped under pending work");
  CHECK(found->function == "cuMemUnmap");
  CHECK(found->b == kGranularity);
}

TEST_CASE("CUDASIM_ABORT_ON_VIOLATION ends the process at its first violation") {
  TemporaryFolder folder;
  Child::Options options;
  options.environment = {{"CUDASIM_ABORT_ON_VIOLATION", "1"}};
  Child child(folder.path(), unmap_under_memset, options);
  CHECK(child.wait() == -SIGABRT);
  CHECK(folder->violations() == 1);
}
