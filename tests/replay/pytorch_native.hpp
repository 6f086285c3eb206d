// How PyTorch's native caching allocator takes memory: segments of 2 MiB and 20 MiB, bigger requests rounded
// to 2 MiB, freed blocks kept, and on a refusal the unused segments given back before one more try. Its
// public source and the sequence: tests/replay/README.md. Facts only, no code of it.
//
// One stream, no expandable segments, no garbage collection threshold: the defaults of a plain program.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/replay/memory.hpp"

namespace apportion::replay {

class PytorchNative {
 public:
  // `memory` has been started and outlives it. Destroying it gives nothing back: Memory does.
  explicit PytorchNative(Memory& memory) : memory_(memory) {}
  PytorchNative(const PytorchNative&) = delete;
  PytorchNative& operator=(const PytorchNative&) = delete;

  // The address of a tensor of `size` bytes, not 0. Error out_of_memory as a program sees it, with what it
  // was told.
  Result<std::uint64_t> allocate(Bytes size);
  // `address` came from allocate. The memory stays in the cache.
  void free(std::uint64_t address);
  // Gives every segment with no tensor in it back (torch.cuda.empty_cache).
  Status empty_cache();

  struct Counts {
    std::size_t segments = 0;        // held now
    Bytes reserved;                  // in segments
    Bytes allocated;                 // in tensors, rounded as the allocator rounds
    std::size_t segments_asked = 0;  // of the device, refused ones included
    std::size_t retries = 0;         // refusals answered by giving caches back
  };
  [[nodiscard]] Counts counts() const { return counts_; }
  // The segments held, ascending by address.
  [[nodiscard]] std::vector<Block> segments() const;

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
  Counts counts_;
};

// One step of a program: allocates a tensor under a name, or frees it.
struct TensorStep {
  std::string name;
  Bytes size;  // 0: free
};

// A short training run in small: weights, activations of growing size that are freed, an optimiser's state,
// and at last one tensor that only fits when the caches are given back. `room` is what the program may hold.
[[nodiscard]] std::vector<TensorStep> small_training_run(Bytes room);

// Runs the steps; the error of the first that fails.
[[nodiscard]] Status run_steps(PytorchNative& allocator, const std::vector<TensorStep>& steps);

}  // namespace apportion::replay
