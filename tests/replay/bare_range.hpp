// Addresses on the bare device, filled and emptied by the driver's own calls, one handle a page.
#pragma once

#include <map>

#include "gpu/mapping.hpp"
#include "tests/replay/memory.hpp"

namespace apportion::replay {

class BareRange final : public Range {
 public:
  // `device` and `maker` outlive it.
  static Result<std::unique_ptr<Range>> reserve(const Device& device, ChunkMaker& maker, Bytes size);
  ~BareRange() override;
  BareRange(const BareRange&) = delete;
  BareRange& operator=(const BareRange&) = delete;

  [[nodiscard]] std::uint64_t base() const override { return range_.base(); }
  Status fill(Bytes offset, Bytes size, Bytes page) override;
  Status empty(Bytes offset, Bytes size) override;

 private:
  BareRange(const Device& device, ChunkMaker& maker, AddressRange range)
      : device_(device), maker_(maker), range_(std::move(range)) {}

  const Device& device_;
  ChunkMaker& maker_;
  AddressRange range_;
  std::map<Bytes, Chunk> pages_;  // by offset; the handles are kept until the page goes
};

}  // namespace apportion::replay
