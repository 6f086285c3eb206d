// tests/replay/pytorch_expandable.hpp.
#include "tests/replay/pytorch_expandable.hpp"

#include <algorithm>
#include <iterator>

namespace apportion::replay {
namespace {

constexpr Bytes kRound = 512_B;        // tensors are rounded up to it
constexpr Bytes kSmallTensor = 1_MiB;  // tensors up to this live in the small segment

}  // namespace

Result<std::uint64_t> PytorchExpandable::allocate(Bytes size) {
  APPORTION_CHECK(size.value != 0);
  const Bytes rounded = round_up(size, kRound);
  auto address = try_allocate(rounded);
  if (!address && no_room(address.error())) {
    ++counts_.retries;
    if (Status emptied = empty_cache(); !emptied) return emptied.error();
    address = try_allocate(rounded);
    if (!address && no_room(address.error())) return out_of_memory(memory_, size);
  }
  if (address) counts_.allocated += rounded;
  return address;
}

Result<std::uint64_t> PytorchExpandable::try_allocate(Bytes size) {
  auto found = segment_for(size);
  if (!found) return found.error();
  Segment* segment = *found;
  if (segment->range == nullptr) {
    ++counts_.segments_asked;
    auto block = memory_.allocate(size);
    if (!block) return block.error();
    placed_.emplace(block->address, size);
    ++counts_.segments;
    counts_.reserved += size;
    return block->address;
  }
  auto piece = best_fit(*segment, size);
  if (piece == segment->pieces.end()) {
    auto expanded = expand(*segment, size);
    if (!expanded) return expanded.error();
    piece = *expanded;
  }
  cut(*segment, piece, size);
  piece->second.state = State::used;
  return segment->range->base() + piece->first.value;
}

// The range is reserved for the first tensor of its kind.
Result<PytorchExpandable::Segment*> PytorchExpandable::segment_for(Bytes size) {
  Segment& segment = size <= kSmallTensor ? small_ : large_;
  if (segment.range != nullptr) return &segment;
  auto told = memory_.told();
  if (!told) return told.error();
  const Bytes addresses = round_up(told->total + Bytes{told->total.value / 8}, segment.page);
  auto range = memory_.reserve(addresses);
  if (!range) return range.error();
  segment.range = *std::move(range);
  if (segment.range != nullptr) {
    ++counts_.segments;
    segment.pieces = {{Bytes{}, Piece{addresses, State::unmapped}}};
  }
  return &segment;
}

PytorchExpandable::Pieces::iterator PytorchExpandable::best_fit(Segment& segment, Bytes size) {
  auto best = segment.pieces.end();
  for (auto piece = segment.pieces.begin(); piece != segment.pieces.end(); ++piece)
    if (piece->second.state == State::free && piece->second.size >= size &&
        (best == segment.pieces.end() || piece->second.size < best->second.size))
      best = piece;
  return best;
}

// Fills addresses behind a free piece, or from an unmapped one on, until `size` bytes are in a row. On an
// error what was filled before it stays, free.
Result<PytorchExpandable::Pieces::iterator> PytorchExpandable::expand(Segment& segment, Bytes size) {
  Pieces& pieces = segment.pieces;
  for (auto first = pieces.begin(); first != pieces.end(); ++first) {
    Bytes room;
    for (auto at = first; at != pieces.end() && at->second.state != State::used && room < size; ++at)
      room += at->second.size;
    if (room < size) continue;
    for (;;) {
      auto gap = first->second.state == State::unmapped ? first : std::next(first);
      const Bytes have = gap == first ? Bytes{} : first->second.size;
      if (gap != first && have >= size) return first;
      APPORTION_CHECK(gap != pieces.end() && gap->second.state == State::unmapped);
      const Bytes fill = std::min(round_up(size - have, segment.page), gap->second.size);
      ++counts_.segments_asked;
      if (Status filled = segment.range->fill(gap->first, fill, segment.page); !filled) return filled.error();
      counts_.reserved += fill;
      cut(segment, gap, fill);
      gap->second.state = State::free;
      first = merge(segment, gap);
    }
  }
  return Error{Errc::out_of_memory, "the segment has no addresses left"};
}

// Leaves `size` bytes in the piece; the rest becomes a piece of its own in the same state.
void PytorchExpandable::cut(Segment& segment, Pieces::iterator piece, Bytes size) {
  const Bytes rest = piece->second.size - size;
  if (rest.value == 0) return;
  segment.pieces.emplace(piece->first + size, Piece{rest, piece->second.state});
  piece->second.size = size;
}

// Joins the piece with neighbours in its state.
PytorchExpandable::Pieces::iterator PytorchExpandable::merge(Segment& segment, Pieces::iterator piece) {
  const auto join = [&](Pieces::iterator left, Pieces::iterator right) {
    if (left->second.state != right->second.state) return right;
    left->second.size += right->second.size;
    segment.pieces.erase(right);
    return left;
  };
  if (const auto next = std::next(piece); next != segment.pieces.end()) join(piece, next);
  return piece == segment.pieces.begin() ? piece : join(std::prev(piece), piece);
}

void PytorchExpandable::free(std::uint64_t address) {
  if (const auto placed = placed_.find(address); placed != placed_.end()) {
    static_cast<void>(memory_.free({address, placed->second}));
    --counts_.segments;
    counts_.reserved -= placed->second;
    counts_.allocated -= placed->second;
    placed_.erase(placed);
    return;
  }
  for (Segment* segment : {&small_, &large_}) {
    if (segment->range == nullptr || address < segment->range->base()) continue;
    const auto piece = segment->pieces.find(Bytes{address - segment->range->base()});
    if (piece == segment->pieces.end()) continue;
    APPORTION_CHECK(piece->second.state == State::used);
    counts_.allocated -= piece->second.size;
    piece->second.state = State::free;
    merge(*segment, piece);
    return;
  }
  APPORTION_CHECK(!"a tensor of this allocator");
}

// Whole pages of free pieces.
Status PytorchExpandable::release_pages(Segment& segment) {
  for (auto piece = segment.pieces.begin(); piece != segment.pieces.end(); ++piece) {
    if (piece->second.state != State::free) continue;
    const Bytes begin = round_up(piece->first, segment.page);
    const Bytes end = round_down(piece->first + piece->second.size, segment.page);
    if (begin >= end) continue;
    if (Status emptied = segment.range->empty(begin, end - begin); !emptied) return emptied;
    counts_.reserved -= end - begin;
    if (begin > piece->first) {
      cut(segment, piece, begin - piece->first);
      ++piece;
    }
    cut(segment, piece, end - begin);
    piece->second.state = State::unmapped;
    piece = merge(segment, piece);
  }
  return Done{};
}

Status PytorchExpandable::empty_cache() {
  for (Segment* segment : {&large_, &small_}) {
    if (segment->range == nullptr) continue;
    if (Status released = release_pages(*segment); !released) return released;
  }
  return memory_.trim();
}

std::vector<Block> PytorchExpandable::segments() const {
  std::vector<Block> blocks;
  for (const auto& [address, size] : placed_)
    blocks.push_back({address, size});
  for (const Segment* segment : {&small_, &large_}) {
    std::uint64_t end = 0;
    for (const auto& [offset, piece] : segment->pieces) {
      if (piece.state == State::unmapped) continue;
      const std::uint64_t address = segment->range->base() + offset.value;
      if (address == end)
        blocks.back().size += piece.size;
      else
        blocks.push_back({address, piece.size});
      end = address + piece.size.value;
    }
  }
  std::ranges::sort(blocks, {}, &Block::address);
  return blocks;
}

}  // namespace apportion::replay
