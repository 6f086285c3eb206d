// What a program does with PyTorch's allocators: tensors by name, allocated and freed. The allocators are
// pytorch_native and pytorch_expandable.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/replay/memory.hpp"

namespace apportion::replay {

class TensorAllocator {
 public:
  virtual ~TensorAllocator() = default;

  // The address of a tensor of `size` bytes, not 0. Error out_of_memory as a program sees it, with what it
  // was told.
  virtual Result<std::uint64_t> allocate(Bytes size) = 0;
  // `address` came from allocate. The memory stays in the cache.
  virtual void free(std::uint64_t address) = 0;
  // Gives back what no tensor is in (torch.cuda.empty_cache).
  virtual Status empty_cache() = 0;

  struct Counts {
    std::size_t segments = 0;        // held now
    Bytes reserved;                  // in segments
    Bytes allocated;                 // in tensors, rounded as the allocator rounds
    std::size_t segments_asked = 0;  // of the device, refused ones included
    std::size_t retries = 0;         // refusals answered by giving caches back
  };
  [[nodiscard]] Counts counts() const { return counts_; }
  // Runs of device memory held, ascending by address.
  [[nodiscard]] virtual std::vector<Block> segments() const = 0;

 protected:
  // The error of a request that was refused after the caches went, as a program reads it; or another error.
  [[nodiscard]] Error out_of_memory(Memory& memory, Bytes size) const;

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

// R6: a tensor of half of `room` and more comes and goes, many of 16 MiB fill half of its place, and then it
// comes again.
[[nodiscard]] std::vector<TensorStep> fragmenting_run(Bytes room);

// Runs the steps; the error of the first that fails.
[[nodiscard]] Status run_steps(TensorAllocator& allocator, const std::vector<TensorStep>& steps);

}  // namespace apportion::replay
