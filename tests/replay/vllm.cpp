// tests/replay/vllm.hpp.
#include "tests/replay/vllm.hpp"

#include <cmath>

namespace apportion::replay {
namespace {

constexpr unsigned kLayers = 8;  // weights and cache come in as many tensors
constexpr unsigned kActivations = 2;

std::int64_t signed_of(Bytes bytes) {
  return static_cast<std::int64_t>(bytes.value);
}

}  // namespace

Replayed Vllm::begin() {
  Replayed replayed = read_numbers(memory_);
  error_ = replayed.error;
  if (!error_.empty()) return replayed;
  at_start_ = Told{.free = *replayed.told_free, .total = *replayed.told_total};
  requested_ = {static_cast<std::uint64_t>(
      std::ceil(static_cast<double>(at_start_.total.value) * params_.utilization))};
  replayed.wanted = requested_;
  if (at_start_.free < requested_)
    error_ = "of " + to_text(at_start_.total) + ", " + to_text(at_start_.free) +
             " are free at the start, less than the wanted " + to_text(requested_);
  replayed.error = error_;
  return replayed;
}

bool Vllm::allocate(const char* what, Bytes size, unsigned parts, std::vector<std::uint64_t>& tensors) {
  for (unsigned i = 0; i < parts; ++i) {
    auto tensor = torch_.allocate(Bytes{size.value / parts});
    if (!tensor) {
      error_ = std::string(what) + ": " + tensor.error().message;
      return false;
    }
    tensors.push_back(*tensor);
  }
  return true;
}

void Vllm::load() {
  if (!error_.empty()) return;
  std::vector<std::uint64_t> weights;  // kept to the end
  allocate("weights", params_.weights, kLayers, weights);
}

void Vllm::profile() {
  if (!error_.empty()) return;
  const Bytes weights = torch_.counts().allocated;
  std::vector<std::uint64_t> activations;
  if (!allocate("activations", params_.activations, kActivations, activations)) return;
  const Bytes peak = torch_.counts().allocated - weights;
  for (const std::uint64_t tensor : activations)
    torch_.free(tensor);
  if (Status emptied = torch_.empty_cache(); !emptied) {
    error_ = emptied.error().message;
    return;
  }
  auto now = memory_.told();
  if (!now) {
    error_ = now.error().message;
    return;
  }
  if (now->free >= at_start_.free) {
    error_ = to_text(at_start_.free) + " were free at the start, and now " + to_text(now->free) +
             " are: others gave memory back meanwhile";
    return;
  }
  // Whatever went and is not in its own segments counts as its libraries', whoever took it.
  const std::int64_t library = signed_of(at_start_.free - now->free) - signed_of(torch_.counts().reserved);
  cache_bytes_ = signed_of(requested_) - signed_of(weights) - signed_of(peak) - library;
  if (*cache_bytes_ <= 0) error_ = "no memory is left for the cache";
}

void Vllm::take_cache() {
  if (!error_.empty() || !cache_bytes_) return;
  const Bytes all{static_cast<std::uint64_t>(*cache_bytes_)};
  std::vector<std::uint64_t> cache;
  allocate("cache", round_down(all, 2_MiB * kLayers), kLayers, cache);
}

}  // namespace apportion::replay
