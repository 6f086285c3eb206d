// Which slots of an address range hold a chunk, and how many live blocks touch each.
//
// A slot is one chunk of addresses. Promises: `idle()`, the number of mapped slots without a live block, is
// exact at any moment. Never: knows where a block starts.
#pragma once

#include <cstdint>
#include <vector>

namespace apportion {

class SlotMap {
 public:
  enum class State : std::uint8_t {
    hole,    // nothing is mapped here
    chunk,   // one chunk of the pool's size
    exact,   // part of a block with a handle of its own
    retired  // a driver call failed here: its state is unknown, and it is never used again
  };

  SlotMap(std::uint32_t slots, std::uint32_t units_per_slot);

  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] std::uint32_t units_per_slot() const { return units_per_slot_; }
  [[nodiscard]] std::uint32_t slot_of(std::uint32_t unit) const {
    return shift_ != kNoShift ? unit >> shift_ : unit / units_per_slot_;
  }
  [[nodiscard]] State state(std::uint32_t slot) const { return slots_[slot].state; }
  [[nodiscard]] std::uint32_t live(std::uint32_t slot) const { return slots_[slot].live; }
  [[nodiscard]] bool idle(std::uint32_t slot) const {
    return slots_[slot].state == State::chunk && slots_[slot].live == 0;
  }
  // Chunks mapped, and those of them without a live block.
  [[nodiscard]] std::uint32_t mapped() const { return mapped_; }
  [[nodiscard]] std::uint32_t idle() const { return idle_; }

  // A slot with live blocks cannot change its state.
  void set_state(std::uint32_t slot, State state);

  void add_block(std::uint32_t unit, std::uint32_t units) {
    const std::uint32_t last = slot_of(unit + units - 1);
    std::uint32_t slot = slot_of(unit);
    do {
      if (slots_[slot].live++ == 0) [[unlikely]]
        --idle_;
    } while (++slot <= last);
  }
  void remove_block(std::uint32_t unit, std::uint32_t units) {
    const std::uint32_t last = slot_of(unit + units - 1);
    std::uint32_t slot = slot_of(unit);
    do {
      if (--slots_[slot].live == 0) [[unlikely]]
        ++idle_;
    } while (++slot <= last);
  }

 private:
  static constexpr std::uint32_t kNoShift = 32;
  struct Slot {
    std::uint32_t live = 0;
    State state = State::hole;
  };

  std::uint32_t units_per_slot_;
  std::uint32_t shift_;
  std::uint32_t mapped_ = 0;
  std::uint32_t idle_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace apportion
