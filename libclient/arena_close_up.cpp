// Where a range has room, but no run of addresses long enough for a block: idle chunks lie between its holes.
// They are moved into its smallest holes, and the holes that they leave join. Live blocks stay where they
// are. Never with slabs, which cannot be moved.
#include <algorithm>

#include "libclient/arena.hpp"
#include "libclient/host_memory.hpp"
#include "libclient/slow_path.hpp"

namespace apportion {

namespace {

struct Target {
  NodeId node;
  Address address;
  std::uint32_t slots;
  bool filled = false;
};

}  // namespace

bool Arena::close_up(Range& range, Stream stream) {
  if (slabs_) return false;
  Taken taken;
  std::vector<Target> targets;
  {
    const Locked locked(lock_);
    const std::uint32_t idle = range.blocks.slots().idle();
    try {
      taken.nodes.reserve(idle);
      taken.addresses.reserve(idle);
      targets.reserve(idle);
    } catch (const std::bad_alloc&) {  // F31
      return false;
    }
    for (const auto& slot : range.blocks.take_idle(idle, false)) {
      taken.nodes.push_back({&range.blocks, slot.node});
      taken.addresses.push_back(slot_address(range, slot.slot));
    }
    for (std::uint32_t room = 0; room < taken.addresses.size();) {
      const auto most = static_cast<std::uint32_t>(taken.addresses.size()) - room;
      const NodeId node = range.blocks.take_smallest_hole(most);
      if (node == kNoNode) break;
      const std::uint32_t slots = range.blocks.slots_in(node);
      targets.push_back({node, range.base + range.blocks.node(node).offset * kUnit, slots});
      room += slots;
    }
  }
  const bool passed = !targets.empty() && synchronize(stream).ok();
  std::size_t moved = 0;
  bool lost = false;
  for (Target& target : targets) {
    if (!passed) break;
    const std::span<const Address> from = std::span(taken.addresses).subspan(moved, target.slots);
    const Status status = shielded([&] { return source_.move(from, target.address); });
    if (!status.ok()) {
      lost = source_.lost();
      break;
    }
    target.filled = true;
    moved += target.slots;
  }
  const Locked locked(lock_);
  for (std::size_t i = 0; i < taken.nodes.size(); ++i) {
    if (i < moved) {
      range.blocks.drop(taken.nodes[i].id, false);
    } else {
      range.blocks.put_back(taken.nodes[i].id, passed);
    }
  }
  for (const Target& target : targets) {
    if (target.filled) {
      range.blocks.make_chunks(target.node);
    } else {
      range.blocks.drop(target.node, std::exchange(lost, false));  // it speaks of the first that failed
    }
  }
  counts_.chunks_moved += moved;
  return moved != 0;
}

Result<Arena::Run> Arena::take_hole(Range& range, std::uint32_t slots) {
  const auto taken = [&]() -> Run {
    const Locked locked(lock_);
    const NodeId node = range.blocks.take_hole(slots);
    if (node == kNoNode) return {};
    return {node, range.base + range.blocks.node(node).offset * kUnit};
  };
  Run run = taken();
  if (run.node == kNoNode && close_up(range, kNoStream)) run = taken();
  if (run.node != kNoNode) return run;
  return Error{Errc::out_of_memory, "no run of addresses for " + to_text(chunk_ * slots) +
                                        ": the arena's range is too fragmented"};
}

}  // namespace apportion
