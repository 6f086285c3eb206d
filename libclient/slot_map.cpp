#include "libclient/slot_map.hpp"

#include <bit>

#include "shm/result.hpp"

namespace apportion {

SlotMap::SlotMap(std::uint32_t slots, std::uint32_t units_per_slot)
    : units_per_slot_(units_per_slot),
      shift_(std::has_single_bit(units_per_slot)
                 ? static_cast<std::uint32_t>(std::countr_zero(units_per_slot))
                 : kNoShift),
      slots_(slots) {}

void SlotMap::set_state(std::uint32_t slot, State state) {
  APPORTION_CHECK(slots_[slot].live == 0);
  if (slots_[slot].state == State::chunk) {
    --mapped_;
    --idle_;
  }
  slots_[slot].state = state;
  if (state == State::chunk) {
    ++mapped_;
    ++idle_;
    slots_[slot].age = 0;
  }
}

SlotMap::Ages SlotMap::grow_older(std::uint8_t ripe) {
  Ages ages;
  for (Slot& slot : slots_) {
    if (slot.state != State::chunk || slot.live != 0) continue;
    if (slot.age < ripe) ++slot.age;
    ++(slot.age == ripe ? ages.ripe : ages.young);
  }
  return ages;
}

}  // namespace apportion
