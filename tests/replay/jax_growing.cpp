// tests/replay/jax_growing.hpp.
#include "tests/replay/jax_growing.hpp"

namespace apportion::replay {

Replayed JaxGrowing::plan() {
  Replayed replayed = read_numbers(memory_);
  error_ = replayed.error;
  if (!replayed.told_total) return replayed;
  total_ = *replayed.told_total;
  prefix_ = round_up(share_of(total_, params_.fraction), params_.pool_unit);
  replayed.wanted = prefix_ + round_up(params_.growth, params_.step);
  return replayed;
}

// One handle of `size`, right behind what there is where the memory has ranges.
bool JaxGrowing::extend(Bytes size) {
  ++tries_;
  if (range_ == nullptr) {
    auto block = memory_.allocate(size);
    if (block)
      blocks_.push_back(*block);
    else
      error_ = block.error().message;
    return block.ok();
  }
  const Bytes end = blocks_.empty() ? Bytes{} : blocks_.front().size;
  if (Status filled = range_->fill(end, size, size); !filled) {
    error_ = filled.error().message;
    return false;
  }
  blocks_.assign(1, Block{range_->base(), end + size});
  return true;
}

void JaxGrowing::take() {
  if (prefix_.value == 0) return;
  auto range = memory_.reserve(total_);
  if (!range) {
    error_ = range.error().message;
    return;
  }
  range_ = *std::move(range);
  if (!extend(prefix_)) return;
  for (Bytes grown; grown < params_.growth; grown += params_.step) {
    auto told = memory_.told();
    if (!told) {
      error_ = told.error().message;
      return;
    }
    if (told->free < params_.step) {
      error_ = "the pool cannot grow by " + to_text(params_.step) + ": " + to_text(told->free) + " are free";
      return;
    }
    if (!extend(params_.step)) return;
  }
}

}  // namespace apportion::replay
