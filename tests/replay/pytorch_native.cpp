// tests/replay/pytorch_native.hpp.
#include "tests/replay/pytorch_native.hpp"

#include <iterator>
#include <utility>

namespace apportion::replay {
namespace {

constexpr Bytes kRound = 512_B;        // tensors are rounded up to it
constexpr Bytes kSmallTensor = 1_MiB;  // tensors up to this share small segments
constexpr Bytes kSmallSegment = 2_MiB;
constexpr Bytes kLargeSegment = 20_MiB;     // for tensors below kOwnSegment
constexpr Bytes kOwnSegment = 10_MiB;       // tensors from this on get a segment of their own size,
constexpr Bytes kOwnSegmentRound = 2_MiB;   // rounded up to this
constexpr Bytes kLargestLargeRest = 1_MiB;  // a rest of a large segment is split off only above this

Bytes segment_for(Bytes rounded) {
  if (rounded <= kSmallTensor) return kSmallSegment;
  if (rounded < kOwnSegment) return kLargeSegment;
  return round_up(rounded, kOwnSegmentRound);
}

bool splits(Bytes rest, bool small) {
  return small ? rest >= kRound : rest > kLargestLargeRest;
}

}  // namespace

PytorchNative::Piece* PytorchNative::find_free(Bytes size, bool small) {
  FreeSet& set = small ? free_small_ : free_large_;
  Piece wish{.address = 0, .size = size, .small = small, .used = false, .first = false, .last = false};
  const auto best = set.lower_bound(&wish);
  if (best == set.end()) return nullptr;
  Piece* piece = *best;
  set.erase(best);
  return piece;
}

Result<PytorchNative::Piece*> PytorchNative::new_segment(Bytes size, bool small) {
  ++counts_.segments_asked;
  auto block = memory_.allocate(size);
  if (!block) return block.error();
  ++counts_.segments;
  counts_.reserved += size;
  const auto [at, added] = pieces_.try_emplace(block->address, Piece{.address = block->address,
                                                                     .size = size,
                                                                     .small = small,
                                                                     .used = false,
                                                                     .first = true,
                                                                     .last = true});
  APPORTION_CHECK(added);
  return &at->second;
}

Result<std::uint64_t> PytorchNative::allocate(Bytes size) {
  APPORTION_CHECK(size.value != 0);
  const Bytes rounded = round_up(size, kRound);
  const bool small = rounded <= kSmallTensor;
  Piece* piece = find_free(rounded, small);
  if (piece == nullptr) {
    auto segment = new_segment(segment_for(rounded), small);
    if (!segment && no_room(segment.error())) {
      ++counts_.retries;
      if (Status emptied = empty_cache(); !emptied) return emptied.error();
      segment = new_segment(segment_for(rounded), small);
    }
    if (!segment) {
      if (!no_room(segment.error())) return segment.error();
      return out_of_memory(memory_, size);
    }
    piece = *segment;
  }
  const Bytes rest = piece->size - rounded;
  if (splits(rest, small)) {
    Piece after{.address = piece->address + rounded.value,
                .size = rest,
                .small = small,
                .used = false,
                .first = false,
                .last = piece->last};
    piece->size = rounded;
    piece->last = false;
    Piece& added = pieces_.emplace(after.address, after).first->second;
    (small ? free_small_ : free_large_).insert(&added);
  }
  piece->used = true;
  counts_.allocated += piece->size;
  return piece->address;
}

void PytorchNative::merge(Pieces::iterator piece) {
  const auto join = [&](Pieces::iterator left, Pieces::iterator right) {
    left->second.size += right->second.size;
    left->second.last = right->second.last;
    pieces_.erase(right);
    return left;
  };
  FreeSet& set = piece->second.small ? free_small_ : free_large_;
  if (!piece->second.last) {
    const auto next = std::next(piece);
    if (!next->second.used) {
      set.erase(&next->second);
      piece = join(piece, next);
    }
  }
  if (!piece->second.first) {
    const auto before = std::prev(piece);
    if (!before->second.used) {
      set.erase(&before->second);
      piece = join(before, piece);
    }
  }
  set.insert(&piece->second);
}

void PytorchNative::free(std::uint64_t address) {
  const auto piece = pieces_.find(address);
  APPORTION_CHECK(piece != pieces_.end() && piece->second.used);
  piece->second.used = false;
  counts_.allocated -= piece->second.size;
  merge(piece);
}

Status PytorchNative::release_unused(bool small) {
  FreeSet& set = small ? free_small_ : free_large_;
  for (auto at = set.begin(); at != set.end();) {
    const Piece* piece = *at;
    if (!piece->first || !piece->last) {
      ++at;
      continue;
    }
    const Block block{piece->address, piece->size};
    at = set.erase(at);
    pieces_.erase(block.address);
    --counts_.segments;
    counts_.reserved -= block.size;
    if (Status freed = memory_.free(block); !freed) return freed;
  }
  return Done{};
}

Status PytorchNative::empty_cache() {
  if (Status large = release_unused(false); !large) return large;
  if (Status small = release_unused(true); !small) return small;
  return memory_.trim();
}

std::vector<Block> PytorchNative::segments() const {
  std::vector<Block> segments;
  for (const auto& [address, piece] : pieces_) {
    if (piece.first) segments.push_back({address, {}});
    segments.back().size += piece.size;
  }
  return segments;
}

}  // namespace apportion::replay
