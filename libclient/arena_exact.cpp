// Exact blocks: each with a driver handle, or a slab, of its own. With the slow lock held throughout.
#include "libclient/arena.hpp"
#include "libclient/host_memory.hpp"
#include "libclient/slow_path.hpp"

namespace apportion {

Result<Address> Arena::allocate_exact(Bytes bytes) {
  if (bytes.value == 0) return Error{Errc::invalid, "an allocation of 0 bytes; ask for at least 1"};
  if (bytes.value > large_.bytes) {
    return Error{Errc::out_of_memory, "an allocation of " + to_text(bytes) + " is larger than the device"};
  }
  if (holds_a_lock()) return arena_busy();
  const SlowGuard guard(slow_);
  if (!guard.held()) return arena_busy();
  const Bytes size = round_up(bytes, granularity_);
  {
    const Locked locked(lock_);
    ++counts_.arena_misses;
  }
  const Result<Run> hole = take_hole(large_, static_cast<std::uint32_t>(round_up(size, chunk_) / chunk_));
  if (!hole) return hole.error();
  const NodeId node = hole->node;
  const Address block = hole->address;
  {
    const Locked locked(lock_);
    if (Status noted = shielded([&]() -> Status { return exact_.emplace(block, Exact{size}), Done{}; });
        !noted) {
      large_.blocks.drop(node, false);
      return noted.error();
    }
  }
  Status status = shielded([&] { return source_.map_exact(block, size); });
  bool lost = source_.lost();  // what is given back next has its own answer
  // The job is at its limit, and part of what it holds is idle here: give that back first.
  if (!status.ok() && !lost && out_of_room(status.error())) {
    if (give_back({0}, Quiesce::synchronize).bytes.value > 0) {
      status = shielded([&] { return source_.map_exact(block, size); });
      lost = source_.lost();
    }
  }
  const Locked locked(lock_);
  if (!status.ok()) {
    exact_.erase(block);
    large_.blocks.drop(node, lost);
    return status.error();
  }
  large_.blocks.make_exact(node);
  exact_units_ += size.value / kUnit;
  ++counts_.growths;
  note_allocated(size.value / kUnit);
  note_mapped();
  if (!sweeping_) note_idle();
  return block;
}

Status Arena::free_exact(Address block) {
  NodeId node = kNoNode;
  Bytes size{0};
  {
    const Locked locked(lock_);
    node = large_.blocks.find_live(static_cast<std::uint32_t>((block - large_.base) / kUnit));
    if (node == kNoNode || large_.blocks.node(node).state != BlockState::exact) return not_live(block);
    size = exact_.at(block).size;
    large_.blocks.take_exact(node);  // a second free finds nothing from here on
  }
  Status status = synchronize(kNoStream);
  const bool synchronised = status.ok();
  if (synchronised) status = shielded([&] { return source_.unmap_exact(block, size); });
  const bool lost = synchronised && !status.ok() && source_.lost();
  const Locked locked(lock_);
  if (!status.ok() && !lost) {
    large_.blocks.make_exact(node);  // it is mapped still, and live still
    return status;
  }
  large_.blocks.drop(node, lost);
  exact_.erase(block);
  exact_units_ -= size.value / kUnit;
  --counts_.live_blocks;
  return status;
}

}  // namespace apportion
