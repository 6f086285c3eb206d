// How the training of a transformer takes memory: weights and optimizer states once, then by iteration
// forward, backward in reverse order, and the optimizer's step.
//
// A pure function of its parameters: the same trace from the same seed everywhere. Sizes are those of half
// precision activations and weights with single precision optimizer states; kernels' workspaces are drawn
// from the seed.
#pragma once

#include <cstdint>
#include <string>

#include "bench/traces/trace_maker.hpp"

namespace apportion::bench {

struct TrainingShape {
  unsigned layers = 24;
  unsigned hidden = 1024;
  unsigned ffn = 4096;
  unsigned vocabulary = 50304;
  unsigned heads = 16;
  unsigned batch = 8;
  unsigned sequence_min = 1024;  // tokens; drawn anew for each micro-step, in steps of 8
  unsigned sequence_max = 1024;
  unsigned lora_rank = 0;    // 0: all weights are trained; else only adapters of this rank are
  bool recompute = false;    // keep a layer's input alone, and compute the rest again in backward
  unsigned micro_steps = 1;  // passes forward and backward for one optimizer step
  unsigned iterations = 20;
  std::uint64_t seed = 1;
};

[[nodiscard]] Trace training_trace(const TrainingShape& shape);
// "layers=24 hidden=1024 ...", every parameter.
[[nodiscard]] std::string to_text(const TrainingShape& shape);

}  // namespace apportion::bench
