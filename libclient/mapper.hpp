// From descriptors to mapped memory and back: import, close, map, set access; unmap.
//
// Promises: a descriptor is closed as soon as its chunk is imported (K3: a forgotten one pins memory for
// ever), and a handle is released as soon as it is mapped (rule 8), so that an unmap is all it takes to let
// go. What fails at its nth step leaves nothing behind (F33). Never: talks to the broker. Not thread-safe;
// the arena's slow lock covers it.
#pragma once

#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/mapping.hpp"
#include "libclient/chunk_source.hpp"
#include "libclient/device_context.hpp"
#include "shm/fd.hpp"
#include "shm/wire_header.hpp"

namespace apportion {

class Mapper {
 public:
  explicit Mapper(const Device& device) : device_(device), context_(device) {}

  // Maps the chunks of one GRANT message one after the other from `at`, readable and writable. fds[i] is
  // entries[i]'s. Errors: invalid (a descriptor that is no memory of this device), out_of_memory (no room for
  // a context), driver.
  [[nodiscard]] Status map(Address at, std::span<const wire::ChunkEntry> entries, std::vector<Fd> fds);
  // Unmaps [at, at + bytes), whole chunks. Synchronise first (rule 18).
  [[nodiscard]] Status unmap(Address at, Bytes bytes);
  // Maps the chunks at `from` one after the other from `to`, then unmaps them there.
  [[nodiscard]] Status move(std::span<const Address> from, Address to, Bytes chunk);
  [[nodiscard]] Status synchronize(Stream stream);
  [[nodiscard]] Status wait_for(std::span<const Stream> streams);
  [[nodiscard]] bool one_context() const { return context_.only_primary(); }

  // Whether the last failure left addresses in an unknown state, and no more can be said of what is mapped
  // there.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  const Device& device_;
  DeviceContext context_;
  bool lost_ = false;
};

}  // namespace apportion
