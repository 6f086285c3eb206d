// Timings and counts over many calls: tests/conformance/peer_probes.hpp.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "driver.hpp"
#include "peer_probes.hpp"

namespace apportion::conformance {
namespace {

using Clock = std::chrono::steady_clock;

CUmemAllocationProp shareable() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// The seven calls of a chunk's life, in the order in which time_calls reports them.
enum Step { kCreate, kMap, kSetAccess, kUnmap, kRelease, kExport, kImport, kSteps };

// Times of one life. Stops at the first refusal and says so; what was made by then stays: the helper that
// measures ends soon after.
CUresult one_life(CUdeviceptr address, std::size_t bytes, std::array<std::uint64_t, kSteps>* ns) {
  const DriverTable& cuda = driver();
  const CUmemAllocationProp prop = shareable();
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle imported = 0;
  int fd = -1;
  CUresult result = CUDA_SUCCESS;
  const auto timed = [&](Step step, auto call) {
    if (result != CUDA_SUCCESS) return;
    const auto start = Clock::now();
    result = call();
    (*ns)[step] = static_cast<std::uint64_t>((Clock::now() - start) / std::chrono::nanoseconds(1));
  };
  timed(kCreate, [&] { return cuda.mem_create(&handle, bytes, &prop, 0); });
  timed(kMap, [&] { return cuda.mem_map(address, bytes, 0, handle, 0); });
  timed(kSetAccess, [&] { return cuda.mem_set_access(address, bytes, &access, 1); });
  timed(kExport, [&] {
    return cuda.mem_export_to_shareable_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  });
  timed(kImport, [&] {
    return cuda.mem_import_from_shareable_handle(&imported,
                                                 reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
  if (fd >= 0) ::close(fd);
  if (imported != 0) cuda.mem_release(imported);
  timed(kUnmap, [&] { return cuda.mem_unmap(address, bytes); });
  timed(kRelease, [&] { return cuda.mem_release(handle); });
  return result;
}

}  // namespace

CUresult time_calls(std::size_t bytes, Reply* out) {
  constexpr std::size_t kRounds = 21;
  CUdeviceptr address = 0;
  if (const CUresult code = driver().mem_address_reserve(&address, bytes, 0, 0, 0); code != CUDA_SUCCESS)
    return code;
  std::array<std::vector<std::uint64_t>, kSteps> all;
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::array<std::uint64_t, kSteps> ns{};
    if (const CUresult code = one_life(address, bytes, &ns); code != CUDA_SUCCESS) return code;
    for (int step = 0; step < kSteps; ++step)
      all[step].push_back(ns[step]);
  }
  std::uint64_t medians[8] = {};
  static_assert(sizeof medians == sizeof out->blob);
  for (int step = 0; step < kSteps; ++step) {
    std::nth_element(all[step].begin(), all[step].begin() + kRounds / 2, all[step].end());
    medians[step] = all[step][kRounds / 2];
  }
  std::memcpy(out->blob, medians, sizeof medians);
  return driver().mem_address_free(address, bytes);
}

CUresult whole_device(std::size_t bytes, std::uint64_t limit_ms, Reply* out) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  const CUmemAllocationProp prop = shareable();
  std::vector<CUmemGenericAllocationHandle> handles;
  std::vector<int> fds;
  bool fds_last = true;
  CUresult code = CUDA_SUCCESS;
  const auto start = Clock::now();
  const auto elapsed_ms = [&] {
    return static_cast<std::uint64_t>((Clock::now() - start) / std::chrono::milliseconds(1));
  };
  while (elapsed_ms() < limit_ms) {
    CUmemGenericAllocationHandle handle = 0;
    code = driver().mem_create(&handle, bytes, &prop, 0);
    if (code != CUDA_SUCCESS) break;
    handles.push_back(handle);
    int fd = -1;
    if (fds_last)
      fds_last = driver().mem_export_to_shareable_handle(
                     &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
    if (fd >= 0) fds.push_back(fd);
  }
  out->value[2] = elapsed_ms();
  out->value[0] = handles.size();
  out->value[1] = fds.size();
  out->value[3] = static_cast<std::uint64_t>(code);
  for (const int fd : fds)
    ::close(fd);
  for (const CUmemGenericAllocationHandle handle : handles)
    driver().mem_release(handle);
  return CUDA_SUCCESS;
}

}  // namespace apportion::conformance
