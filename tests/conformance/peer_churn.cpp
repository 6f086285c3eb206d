// Work to be killed in: tests/conformance/peer_probes.hpp.
#include <unistd.h>

#include <array>
#include <random>

#include "driver.hpp"
#include "peer_probes.hpp"

namespace apportion::conformance {
namespace {

// One allocation in whatever state the last steps left it. Refusals change nothing and are no matter here.
class Piece {
 public:
  void step(std::uint64_t choice, std::size_t bytes) {
    const DriverTable& cuda = driver();
    if (handle_ == 0) {
      make(bytes);
    } else if (address_ != 0) {
      if (cuda.mem_unmap(address_, bytes) == CUDA_SUCCESS) cuda.mem_address_free(address_, bytes);
      address_ = 0;
    } else if (choice % 4 == 0) {
      map(bytes);
    } else if (choice % 4 == 1) {
      share();
    } else {
      cuda.mem_release(handle_);
      handle_ = 0;
    }
  }

 private:
  void make(std::size_t bytes) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (driver().mem_create(&handle_, bytes, &prop, 0) != CUDA_SUCCESS) handle_ = 0;
  }

  void map(std::size_t bytes) {
    if (driver().mem_address_reserve(&address_, bytes, 0, 0, 0) != CUDA_SUCCESS) address_ = 0;
    if (address_ == 0 || driver().mem_map(address_, bytes, 0, handle_, 0) == CUDA_SUCCESS) return;
    driver().mem_address_free(address_, bytes);
    address_ = 0;
  }

  // Through an fd and back: the handle is then an import of the same memory.
  void share() {
    int fd = -1;
    if (driver().mem_export_to_shareable_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
        CUDA_SUCCESS)
      return;
    CUmemGenericAllocationHandle imported = 0;
    void* const os_handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
    if (driver().mem_import_from_shareable_handle(&imported, os_handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS) {
      driver().mem_release(handle_);
      handle_ = imported;
    }
    ::close(fd);
  }

  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
};

}  // namespace

void churn(std::uint64_t seed, std::size_t bytes) {
  std::mt19937_64 random(seed);
  std::array<Piece, 6> pieces;
  for (;;)
    pieces[random() % pieces.size()].step(random(), bytes);
}

}  // namespace apportion::conformance
