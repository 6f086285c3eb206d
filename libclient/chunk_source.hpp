// Where the arena gets its chunks: leases from the broker, mapped by the driver; a model of both in the
// tests.
//
// The arena calls it with its slow lock held and its short lock free: one call at a time, which may block.
// Addresses are multiples of the chunk size within the arena's ranges. A source of slabs (ArenaRanges::slabs)
// makes one slab of what one call maps; move is not asked of it, and unmap only for whole slabs, their chunks
// in order. After an error they are as they were, unless lost() says that their state is unknown: then the
// arena never uses them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libclient/stream_tags.hpp"
#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

using Address = std::uint64_t;  // a device pointer
inline constexpr Stream kNoStream = ~Stream{0};

class ChunkSource {
 public:
  virtual ~ChunkSource() = default;

  // Leases at least `min` and at most `want` chunks and maps them, readable and writable, one after the other
  // from `address`. Returns how many; lost() then speaks of the rest up to `want`. 0 < min <= want.
  virtual Result<std::uint32_t> map(Address address, std::uint32_t min, std::uint32_t want) = 0;

  // Maps the chunks at `from` one after the other from `to` instead. All or nothing. The chunks at `from` are
  // intact after an error; lost() speaks of `to`.
  virtual Status move(std::span<const Address> from, Address to) = 0;

  // Unmaps chunks and gives them back, in order, up to the first that fails.
  struct Returned {
    std::size_t count = 0;
    std::size_t lost = 0;  // of the chunks after these: in an unknown state
    std::optional<Error> error;
  };
  virtual Returned unmap(std::span<const Address> chunks) = 0;

  // One driver handle of its own for a block: `bytes`, a multiple of the granularity.
  virtual Status map_exact(Address address, Bytes bytes) = 0;
  virtual Status unmap_exact(Address address, Bytes bytes) = 0;

  // Returns when the GPU has done everything this process gave it before the call. `stream` is one the caller
  // is about to use, or kNoStream. An error (a stream is capturing) means that nothing is known.
  virtual Status synchronize(Stream stream) = 0;

  // The same for these streams alone: one event a stream, whatever the number of frees. An error (one of them
  // is capturing, or no stream of the context) means that nothing is known.
  virtual Status wait_for(std::span<const Stream> streams) = 0;

  // Where slabs and exact blocks start whose memory has gone since the last call (F52): what the arena then
  // unmaps of them has no lease any more. Slabs only.
  [[nodiscard]] virtual std::vector<Address> take_gone() { return {}; }

  // Whether all of the program's work goes to the context that a thread without one works in here, as far as
  // calls have shown. Only then does wait_for on such a thread know the default stream that the program
  // means.
  [[nodiscard]] virtual bool one_context() const = 0;

  // Whether the last call left addresses in an unknown state.
  [[nodiscard]] virtual bool lost() const = 0;
};

}  // namespace apportion
