// How vLLM sizes its cache of keys and values: it reads what is free and in all at its start and wants a
// share of all, loads its weights, runs once to see what activations take, reads what is free again, takes
// whatever went meanwhile and is not its own allocator's for library memory of its own, and makes the rest of
// its share the cache. Its public source and the sequence: tests/replay/README.md. Facts only, no code of it.
#pragma once

#include <optional>

#include "tests/replay/bfc_pool.hpp"
#include "tests/replay/pytorch_native.hpp"

namespace apportion::replay {

struct VllmParams {
  double utilization = 0.9;  // gpu_memory_utilization, of the total it is told
  Bytes weights = 4_GiB;
  Bytes activations = 1_GiB;  // at the peak of the profiling run
};

class Vllm {
 public:
  // `memory` has been started and outlives it.
  Vllm(Memory& memory, const VllmParams& params) : memory_(memory), params_(params), torch_(memory) {}

  // Its steps, in this order. One that fails says why in error(), and the later ones do nothing.
  [[nodiscard]] Replayed begin();  // reads its numbers; wants its share
  void load();                     // weights
  void profile();                  // activations come and go; what is left is for the cache
  void take_cache();

  // What is left for the cache, in bytes, after profile(); negative where others took more than there was.
  [[nodiscard]] std::optional<std::int64_t> cache_bytes() const { return cache_bytes_; }
  [[nodiscard]] std::vector<Block> blocks() const { return torch_.segments(); }
  [[nodiscard]] TensorAllocator::Counts counts() const { return torch_.counts(); }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  bool allocate(const char* what, Bytes size, unsigned parts, std::vector<std::uint64_t>& tensors);

  Memory& memory_;
  VllmParams params_;
  PytorchNative torch_;
  Told at_start_;
  Bytes requested_;
  std::optional<std::int64_t> cache_bytes_;
  std::string error_;
};

}  // namespace apportion::replay
