// Anonymous shared memory, and the seals that keep a receiver from changing it.
//
// Promises: close-on-exec, not executable, mode 0600. F22: sealed pages cannot be written through a new
// mapping, a reopened /proc/self/fd or write(), nor truncated or punched, by anybody, the writer's own new
// mappings included. Never: named in a filesystem.
#pragma once

#include <string>

#include "shm/bytes.hpp"
#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

// Errc::system. `name` shows in /proc/PID/maps, for people. The contents are zero.
[[nodiscard]] Result<Fd> make_memfd(const std::string& name, Bytes size);

// The broker's pages: SHRINK, GROW, FUTURE_WRITE, SEAL. Seal after mapping: the mapping made before stays
// writable, every later one is read-only.
[[nodiscard]] Status seal_read_only(const Fd& memfd);
// The report page: SHRINK, GROW, SEAL. Size fixed, so that no reader meets SIGBUS; contents writable.
[[nodiscard]] Status seal_size(const Fd& memfd);

// For a receiver: Errc::protocol unless `memfd` is a memfd whose size can no longer change.
[[nodiscard]] Status require_sealed_size(int memfd);

// Errc::system. The size of what `fd` names.
[[nodiscard]] Result<Bytes> size_of(int fd);

}  // namespace apportion
