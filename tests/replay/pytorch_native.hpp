// How PyTorch's native caching allocator takes memory: segments of 2 MiB and 20 MiB, bigger requests rounded
// to 2 MiB, freed blocks kept, and on a refusal the unused segments given back before one more try. Its
// public source and the sequence: tests/replay/README.md. Facts only, no code of it.
//
// One stream, no expandable segments, no garbage collection threshold: the defaults of a plain program.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tests/replay/tensors.hpp"

namespace apportion::replay {

class PytorchNative final : public TensorAllocator {
 public:
  // `memory` has been started and outlives it. Destroying it gives nothing back: Memory does.
  explicit PytorchNative(Memory& memory) : memory_(memory) {}
  PytorchNative(const PytorchNative&) = delete;
  PytorchNative& operator=(const PytorchNative&) = delete;

  Result<std::uint64_t> allocate(Bytes size) override;
  void free(std::uint64_t address) override;
  Status empty_cache() override;
  [[nodiscard]] std::vector<Block> segments() const override;

 private:
  struct Piece {  // a part of a segment: a tensor, or free
    std::uint64_t address;
    Bytes size;
    bool small;
    bool used;
    bool first;  // of its segment
    bool last;
  };
  using Pieces = std::map<std::uint64_t, Piece>;
  struct BySize {
    bool operator()(const Piece* a, const Piece* b) const {
      return a->size != b->size ? a->size < b->size : a->address < b->address;
    }
  };
  using FreeSet = std::set<Piece*, BySize>;

  Piece* find_free(Bytes size, bool small);
  Result<Piece*> new_segment(Bytes size, bool small);
  Status release_unused(bool small);
  void merge(Pieces::iterator piece);

  Memory& memory_;
  Pieces pieces_;  // all, by address; neighbours of one segment are next to each other
  FreeSet free_small_;
  FreeSet free_large_;
};

}  // namespace apportion::replay
