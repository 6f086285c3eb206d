// How the serving of a language model takes memory: weights once, then by step a paged key-value cache that
// grows with each running request, and activations for the tokens of the step.
//
// A pure function of its parameters: the same trace from the same seed everywhere. Requests arrive at random
// (Poisson); prompts and answers have exponential lengths; a request that ends frees its pages.
#pragma once

#include <cstdint>
#include <string>

#include "bench/traces/trace_maker.hpp"

namespace apportion::bench {

struct ServingShape {
  unsigned layers = 32;
  unsigned hidden = 4096;
  unsigned ffn = 14336;
  unsigned vocabulary = 32000;
  double arrivals = 0.5;        // by step, on average
  unsigned prompt_mean = 512;   // tokens
  unsigned answer_mean = 128;   // tokens
  unsigned requests_most = 96;  // running at a time; others wait
  unsigned page_tokens = 16;
  std::uint64_t page_bytes = std::uint64_t{2} << 20;
  unsigned page_parts = 1;  // allocations that make a page: 1 x 2 MiB, or 32 x 64 KiB, one a layer
  unsigned steps = 2000;
  std::uint64_t seed = 1;
};

[[nodiscard]] Trace serving_trace(const ServingShape& shape);
[[nodiscard]] std::string to_text(const ServingShape& shape);

}  // namespace apportion::bench
