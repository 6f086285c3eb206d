// gpu/scrub.hpp.
#include "gpu/scrub.hpp"

#include "gpu/mapping.hpp"

namespace apportion {

Status scrub(const Device& device, std::span<const Chunk* const> chunks, bool& left_mapped) {
  left_mapped = false;
  const DriverTable& driver = device.driver();
  // All of them in one run of addresses: the driver's calls cost by the call, not by the byte.
  Result<Mapping> mapped = Mapping::map(device, chunks);
  if (!mapped.ok()) return mapped.error();
  const CUresult given = driver.memset_d8_async(mapped->base(), 0, mapped->size().value, nullptr);
  // Waited for also after an error: nothing is unmapped under work that may still run.
  const CUresult done = driver.stream_synchronize(nullptr);
  const Status unmapped = mapped->unmap();
  left_mapped = !unmapped.ok();
  if (given != CUDA_SUCCESS) return driver_error(driver, given, "cuMemsetD8Async");
  if (done != CUDA_SUCCESS) return driver_error(driver, done, "cuStreamSynchronize");
  return unmapped;
}

}  // namespace apportion
