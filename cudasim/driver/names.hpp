// The table of every symbol this library exports: symbol, base name, first CUDA version, default stream,
// address.
//
// Promises: complete for CUDA 13.0 (cuda.h and the typedef headers), sorted by symbol; a symbol of one ABI is
// never given for another. Never: knows what a function does. The rows are names.inc, written by
// generate_names.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cudasim {

enum class DefaultStream : std::uint8_t { legacy, per_thread };

struct Name {
  const char* symbol;    // "cuMemAlloc_v2": what dlsym finds
  const char* base;      // "cuMemAlloc": what cuGetProcAddress is asked for
  int first_version;     // 3020: the CUDA version from which the base name means this symbol
  DefaultStream stream;  // per_thread: the _ptds or _ptsz form
  void* address;
};

// All rows, sorted by symbol (byte order). The index of a row is its number in counters and logs.
[[nodiscard]] std::span<const Name> names();

// The row of an exported symbol, or null.
[[nodiscard]] const Name* find_symbol(std::string_view symbol);

struct Lookup {
  enum class Outcome : std::uint8_t { found, unknown_name, version_too_old } outcome;
  const Name* name;  // null unless found
};

// What `base` means to a program of CUDA version `version` (1000 * major + 10 * minor): the newest symbol
// that is not newer than that. Per-thread forms are looked for first where asked, and the legacy form stands
// in for them.
[[nodiscard]] Lookup look_up(std::string_view base, int version, DefaultStream stream);

}  // namespace cudasim
