// What a replayed framework sees of the device: a context, two numbers, allocate and free, addresses to fill.
//
// One implementation talks to the driver, one to libclient, so that the same sequence of requests runs on
// both. Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion::replay {

// Memory a replayer holds.
struct Block {
  std::uint64_t address = 0;
  Bytes size;
};

// What a program is told about its memory.
struct Told {
  Bytes free;
  Bytes total;
};

// Addresses without memory, which are filled and emptied in pages of one driver handle each.
class Range {
 public:
  virtual ~Range() = default;  // what is filled goes

  [[nodiscard]] virtual std::uint64_t base() const = 0;
  // Memory for [base + offset, + size), in handles of `page`, which divides both: all of it or, on an error,
  // none. Errors as Memory::allocate's.
  virtual Status fill(Bytes offset, Bytes size, Bytes page) = 0;
  // Waits for the GPU, then gives whole pages back.
  virtual Status empty(Bytes offset, Bytes size) = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;

  // What a program does before its first allocation: driver and context, or attaching to the job. Once.
  virtual Status start() = 0;
  virtual Result<Told> told() = 0;
  // Errors: out_of_memory and quota mean "shrink and ask again"; anything else ends the program.
  virtual Result<Block> allocate(Bytes size) = 0;
  virtual Status free(const Block& block) = 0;
  // Addresses to fill. Null: this memory places what it gives by itself, in addresses of its own that grow;
  // ask allocate for each piece.
  virtual Result<std::unique_ptr<Range>> reserve(Bytes) { return std::unique_ptr<Range>(); }
  // What was freed is to be had by others afterwards (the end of torch.cuda.empty_cache).
  virtual Status trim() { return Done{}; }
  // 8 bytes of device memory, written and read by the driver's own copies.
  virtual Status write(std::uint64_t address, std::uint64_t value) = 0;
  virtual Result<std::uint64_t> read(std::uint64_t address) = 0;
};

// Whether an error means that there is no room, for now.
[[nodiscard]] inline bool no_room(const Error& error) {
  return error.code == Errc::out_of_memory || error.code == Errc::quota;
}

// Writes the first and last 8 bytes of every `chunk` bytes of the block, with values that depend on `tag` and
// the address, then reads all of them back. Returns the bytes of the chunks whose both words came back: less
// than the block's size means memory that is not there, or that someone else writes to.
[[nodiscard]] Result<Bytes> check_block(Memory& memory, const Block& block, Bytes chunk, std::uint64_t tag);
// The second half alone: whether what check_block wrote is still there.
[[nodiscard]] Result<Bytes> check_again(Memory& memory, const Block& block, Bytes chunk, std::uint64_t tag);

}  // namespace apportion::replay
