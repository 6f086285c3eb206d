// tests/replay/bare_range.hpp.
#include "tests/replay/bare_range.hpp"

#include <vector>

#include "gpu/stream.hpp"

namespace apportion::replay {

Result<std::unique_ptr<Range>> BareRange::reserve(const Device& device, ChunkMaker& maker, Bytes size) {
  auto range = AddressRange::reserve(device, round_up(size, device.facts().granularity));
  if (!range) return range.error();
  return std::unique_ptr<Range>(new BareRange(device, maker, *std::move(range)));
}

BareRange::~BareRange() {
  static_cast<void>(synchronize_context(device_.driver()));
  for (const auto& [offset, page] : pages_)
    static_cast<void>(unmap_run(device_.driver(), base() + offset.value, page.size()));
}

Status BareRange::fill(Bytes offset, Bytes size, Bytes page) {
  std::vector<Chunk> made;
  for (Bytes done; done < size; done += page) {
    auto chunk = maker_.make(page);
    if (!chunk) return chunk.error();  // those made so far go with the vector
    made.push_back(*std::move(chunk));
  }
  std::vector<const Chunk*> run;
  for (const Chunk& chunk : made)
    run.push_back(&chunk);
  if (Status mapped = map_run(device_, base() + offset.value, run); !mapped) return mapped;
  for (Chunk& chunk : made) {
    pages_.emplace(offset, std::move(chunk));
    offset += page;
  }
  return Done{};
}

Status BareRange::empty(Bytes offset, Bytes size) {
  if (Status idle = synchronize_context(device_.driver()); !idle) return idle;
  const Bytes end = offset + size;
  for (auto page = pages_.lower_bound(offset); page != pages_.end() && page->first < end;) {
    const CUdeviceptr at = base() + page->first.value;
    if (Status unmapped = unmap_run(device_.driver(), at, page->second.size()); !unmapped) return unmapped;
    if (Status released = page->second.release(); !released) return released;
    page = pages_.erase(page);
  }
  return Done{};
}

}  // namespace apportion::replay
