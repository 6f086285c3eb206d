#include "bench/peers/ref8.hpp"

#include <bit>

#include "shm/result.hpp"

namespace apportion::bench {
namespace {

// The bin whose smallest size is not above `units`: exact below 8, then 8 equal steps an octave.
std::uint32_t bin_below(std::uint32_t units) {
  if (units < 8) return units;
  const auto shift = static_cast<std::uint32_t>(28 - std::countl_zero(units));
  return ((shift + 1) << 3) | ((units >> shift) & 7);
}

// The first bin in which every block has room for `units`.
std::uint32_t bin_above(std::uint32_t units) {
  if (units < 8) return units;
  const auto shift = static_cast<std::uint32_t>(28 - std::countl_zero(units));
  const std::uint32_t bin = ((shift + 1) << 3) | ((units >> shift) & 7);
  return bin + ((units & ((1U << shift) - 1)) != 0 ? 1 : 0);
}

}  // namespace

Ref8::Ref8(std::uint32_t units, std::uint32_t blocks)
    : nodes_(std::make_unique<Node[]>(blocks)),
      spare_(std::make_unique<std::uint32_t[]>(blocks)),
      count_(blocks) {
  APPORTION_CHECK(units > 0 && units <= 1U << 31 && blocks > 0);
  head_.fill(kNone);
  for (std::uint32_t id = blocks; id-- > 0;)
    spare_[spares_++] = id;
  const std::uint32_t all = spare_[--spares_];
  nodes_[all] = {0, units, kNone, kNone, kNone, kNone, kTaken};
  list(all);
}

// A node whose place, size and neighbours stand becomes free.
[[gnu::always_inline]] inline void Ref8::list(std::uint32_t id) noexcept {
  Node& node = nodes_[id];
  const std::uint32_t bin = bin_below(node.units);
  const std::uint32_t after = head_[bin];
  if (after == kNone) {
    leaf_[bin >> 3] = static_cast<std::uint8_t>(leaf_[bin >> 3] | 1U << (bin & 7));
    top_ |= 1U << (bin >> 3);
  } else {
    nodes_[after].bin_before = id;
  }
  node.bin_before = kNone;
  node.bin_after = after;
  node.bin = bin;
  head_[bin] = id;
  free_units_ += node.units;
}

[[gnu::always_inline]] inline void Ref8::unlist(std::uint32_t id) noexcept {
  const Node& node = nodes_[id];
  free_units_ -= node.units;
  if (node.bin_after != kNone) nodes_[node.bin_after].bin_before = node.bin_before;
  if (node.bin_before != kNone) {
    nodes_[node.bin_before].bin_after = node.bin_after;
    return;
  }
  head_[node.bin] = node.bin_after;
  if (node.bin_after == kNone) clear(node.bin);
}

// The bin has become empty.
[[gnu::always_inline]] inline void Ref8::clear(std::uint32_t bin) noexcept {
  leaf_[bin >> 3] = static_cast<std::uint8_t>(leaf_[bin >> 3] & ~(1U << (bin & 7)));
  if (leaf_[bin >> 3] == 0) top_ &= ~(1U << (bin >> 3));
}

Ref8::Block Ref8::allocate(std::uint32_t units) noexcept {
  if (spares_ == 0) return {};  // the rest may need a node
  const std::uint32_t least = bin_above(units);
  std::uint32_t top = least >> 3;
  std::uint32_t leaves = leaf_[top] & (0xffU << (least & 7));
  if (leaves == 0) {
    const std::uint32_t tops = top_ & ~((2U << top) - 1);
    if (tops == 0) return {};
    top = static_cast<std::uint32_t>(std::countr_zero(tops));
    leaves = leaf_[top];
  }
  const std::uint32_t bin = top << 3 | static_cast<std::uint32_t>(std::countr_zero(leaves));
  const std::uint32_t id = head_[bin];
  Node& node = nodes_[id];
  head_[bin] = node.bin_after;
  free_units_ -= node.units;
  if (node.bin_after != kNone) {
    nodes_[node.bin_after].bin_before = kNone;
  } else {
    clear(bin);
  }
  node.bin = kTaken;
  if (node.units != units) {
    const std::uint32_t rest = spare_[--spares_];
    Node& free = nodes_[rest];
    free.offset = node.offset + units;
    free.units = node.units - units;
    free.left = id;
    free.right = node.right;
    if (node.right != kNone) nodes_[node.right].left = rest;
    node.right = rest;
    node.units = units;
    list(rest);
  }
  return {node.offset, id};
}

void Ref8::free(Block block) noexcept {
  Node& node = nodes_[block.node];
  if (const std::uint32_t left = node.left; left != kNone && nodes_[left].bin != kTaken) {
    const Node& before = nodes_[left];
    unlist(left);
    node.offset = before.offset;
    node.units += before.units;
    node.left = before.left;
    if (node.left != kNone) nodes_[node.left].right = block.node;
    spare_[spares_++] = left;
  }
  if (const std::uint32_t right = node.right; right != kNone && nodes_[right].bin != kTaken) {
    const Node& after = nodes_[right];
    unlist(right);
    node.units += after.units;
    node.right = after.right;
    if (node.right != kNone) nodes_[node.right].left = block.node;
    spare_[spares_++] = right;
  }
  list(block.node);
}

std::string Ref8::check() const {
  std::uint64_t free_units = 0;
  std::uint32_t listed = 0;
  for (std::uint32_t bin = 0; bin < kBins; ++bin) {
    const bool leaf = (leaf_[bin >> 3] >> (bin & 7) & 1) != 0;
    if (leaf != (head_[bin] != kNone)) return "a leaf bit is wrong";
    if (leaf && (top_ >> (bin >> 3) & 1) == 0) return "a top bit is missing";
    std::uint32_t before = kNone;
    for (std::uint32_t id = head_[bin]; id != kNone; before = id, id = nodes_[id].bin_after) {
      const Node& node = nodes_[id];
      if (node.bin == kTaken) return "a taken block is listed";
      if (node.bin_before != before) return "a bin's list is torn";
      if (node.bin != bin || bin_below(node.units) != bin) return "a block is in a wrong bin";
      if (node.left != kNone && nodes_[node.left].right != id) return "neighbours disagree";
      if (node.right != kNone) {
        const Node& right = nodes_[node.right];
        if (right.left != id) return "neighbours disagree";
        if (right.bin != kTaken) return "two free neighbours";
        if (right.offset != node.offset + node.units) return "a hole between neighbours";
      }
      free_units += node.units;
      if (++listed > count_) return "a list has no end";
    }
  }
  return free_units == free_units_ ? "" : "free units are miscounted";
}

}  // namespace apportion::bench
