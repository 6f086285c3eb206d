// The broker's memory: the replayer's requests become calls of libapportion, as a linked program's own would.
#pragma once

#include <string>

#include "gpu/context.hpp"
#include "libclient/include/apportion/apportion.h"
#include "tests/replay/memory.hpp"

namespace apportion::replay {

class LeasedMemory final : public Memory {
 public:
  // `device` is the broker's, and outlives it. start() makes the primary context and joins `job`.
  LeasedMemory(const Device& device, std::string job, bool reclaimable = false)
      : device_(device), job_(std::move(job)), reclaimable_(reclaimable) {}
  ~LeasedMemory() override;
  LeasedMemory(const LeasedMemory&) = delete;
  LeasedMemory& operator=(const LeasedMemory&) = delete;

  Status start() override;
  Result<Told> told() override;
  Result<Block> allocate(Bytes size) override;
  Status free(const Block& block) override;
  Status trim() override;
  Status write(std::uint64_t address, std::uint64_t value) override;
  Result<std::uint64_t> read(std::uint64_t address) override;

  [[nodiscard]] apportion_client* client() const { return client_; }

 private:
  const Device& device_;
  std::string job_;
  bool reclaimable_;
  PrimaryContext context_;
  apportion_client* client_ = nullptr;
};

}  // namespace apportion::replay
