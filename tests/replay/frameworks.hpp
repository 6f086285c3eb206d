// The frameworks of this folder behind one face, for a worker that is told which one to be.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/replay/jax_classic.hpp"
#include "tests/replay/jax_growing.hpp"
#include "tests/replay/tensorflow_greedy.hpp"
#include "tests/replay/vllm.hpp"

namespace apportion::replay {

// What a framework took, and why it is less than it wanted.
struct Taken {
  std::vector<Block> blocks;
  Bytes wanted;
  unsigned tries = 0;  // refused ones included
  std::string error;
  std::optional<std::int64_t> cache_bytes;  // vLLM: what it found to be left for its cache
};

class Framework {
 public:
  virtual ~Framework() = default;

  // What it reads at its start, and what it then wants. `memory` has been started.
  virtual Replayed plan() = 0;
  // Takes memory in as many steps; the last one's answer counts.
  [[nodiscard]] virtual unsigned steps() const { return 1; }
  virtual Taken step(unsigned number) = 0;
};

struct FrameworkParams {
  double fraction = 0.75;       // jax, jax-growing
  Bytes first_request = 4_GiB;  // jax, tensorflow
  Bytes growth;                 // jax-growing
  VllmParams vllm;
  bool fragmenting = false;  // pytorch, pytorch-expandable: fragmenting_run instead of small_training_run
};

// jax, jax-growing, tensorflow, vllm, pytorch or pytorch-expandable; null for another name.
[[nodiscard]] std::unique_ptr<Framework> framework_named(std::string_view name, Memory& memory,
                                                         const FrameworkParams& params);
[[nodiscard]] bool is_framework(std::string_view name);

}  // namespace apportion::replay
