// The bare device: the replayer's requests become driver calls, as the framework's own would.
#pragma once

#include <map>

#include "gpu/context.hpp"
#include "gpu/mapping.hpp"
#include "tests/replay/memory.hpp"

namespace apportion::replay {

class BareMemory final : public Memory {
 public:
  enum class Backing {
    mem_alloc,  // one cuMemAlloc a request
    vmm,  // one cuMemCreate, reserve, map and set access a request; the handle is kept until the block goes
  };
  // `device` outlives it. start() makes the device's primary context.
  BareMemory(const Device& device, Backing backing) : device_(device), backing_(backing), maker_(device) {}
  ~BareMemory() override;
  BareMemory(const BareMemory&) = delete;
  BareMemory& operator=(const BareMemory&) = delete;

  Status start() override;
  Result<Told> told() override;
  Result<Block> allocate(Bytes size) override;
  Status free(const Block& block) override;
  Result<std::unique_ptr<Range>> reserve(Bytes size) override;
  Status write(std::uint64_t address, std::uint64_t value) override;
  Result<std::uint64_t> read(std::uint64_t address) override;

 private:
  Result<Block> allocate_mapped(Bytes size);
  Status free_mapped(const Block& block);

  const Device& device_;
  Backing backing_;
  ChunkMaker maker_;
  PrimaryContext context_;
  struct Mapped {
    Chunk chunk;
    AddressRange range;
  };
  std::map<CUdeviceptr, Mapped> mapped_;      // backing vmm: by base
  std::map<CUdeviceptr, Bytes> allocations_;  // backing mem_alloc
};

}  // namespace apportion::replay
