// How PyTorch takes memory with expandable segments: one range of addresses for small tensors and one for
// large ones, each 9/8 of the device, filled in pages of 2 MiB and 20 MiB (a driver handle each) as tensors
// need them, and emptied page by page where a refusal asks for caches. Its public source and the sequence:
// tests/replay/README.md. Facts only, no code of it.
//
// One stream. Where the memory has no ranges to fill (libclient: its arena is such a segment by itself), each
// tensor is a block of it, freed at once.
#pragma once

#include <map>

#include "tests/replay/tensors.hpp"

namespace apportion::replay {

class PytorchExpandable final : public TensorAllocator {
 public:
  // `memory` has been started and outlives it. What is held in ranges goes with it.
  explicit PytorchExpandable(Memory& memory) : memory_(memory) {}
  PytorchExpandable(const PytorchExpandable&) = delete;
  PytorchExpandable& operator=(const PytorchExpandable&) = delete;

  Result<std::uint64_t> allocate(Bytes size) override;
  void free(std::uint64_t address) override;
  Status empty_cache() override;
  [[nodiscard]] std::vector<Block> segments() const override;

 private:
  enum class State { used, free, unmapped };
  struct Piece {
    Bytes size;
    State state;
  };
  using Pieces = std::map<Bytes, Piece>;  // by offset; together the whole range
  struct Segment {
    std::unique_ptr<Range> range;
    Bytes page;
    Pieces pieces;
  };

  Result<std::uint64_t> try_allocate(Bytes size);
  Result<Segment*> segment_for(Bytes size);
  static Pieces::iterator best_fit(Segment& segment, Bytes size);
  Result<Pieces::iterator> expand(Segment& segment, Bytes size);
  static void cut(Segment& segment, Pieces::iterator piece, Bytes size);
  static Pieces::iterator merge(Segment& segment, Pieces::iterator piece);
  Status release_pages(Segment& segment);

  Memory& memory_;
  Segment small_{.range = nullptr, .page = 2_MiB, .pieces = {}};
  Segment large_{.range = nullptr, .page = 20_MiB, .pieces = {}};
  std::map<std::uint64_t, Bytes> placed_;  // tensors that the memory placed itself
};

}  // namespace apportion::replay
