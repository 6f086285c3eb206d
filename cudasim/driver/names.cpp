#include "cudasim/driver/names.hpp"

#include <algorithm>
#include <iterator>

// Only addresses are needed here, and cuda.h has a type for each: so this file does not include it.
#define CUDASIM_NAME(symbol, base, version, stream) extern "C" void symbol();
#include "cudasim/driver/names.inc"
#undef CUDASIM_NAME

namespace cudasim {
namespace {

constexpr DefaultStream k_legacy = DefaultStream::legacy;
constexpr DefaultStream k_ptds = DefaultStream::per_thread;
constexpr DefaultStream k_ptsz = DefaultStream::per_thread;

const Name kNames[] = {
#define CUDASIM_NAME(symbol, base, version, stream) \
  Name{#symbol, #base, version, k_##stream, reinterpret_cast<void*>(&symbol)},
#include "cudasim/driver/names.inc"
#undef CUDASIM_NAME
};

const Name* newest(std::string_view base, int version, DefaultStream stream, bool& known) {
  // Symbols that share a base name start with it, so they lie behind its place in the sorted table.
  const Name* best = nullptr;
  auto row = std::ranges::lower_bound(kNames, base, {},
                                      [](const Name& name) { return std::string_view(name.symbol); });
  for (; row != std::end(kNames) && std::string_view(row->symbol).starts_with(base); ++row) {
    if (row->base != base) continue;
    known = true;
    if (row->stream != stream || row->first_version > version) continue;
    if (best == nullptr || row->first_version > best->first_version) best = &*row;
  }
  return best;
}

}  // namespace

std::span<const Name> names() {
  return kNames;
}

const Name* find_symbol(std::string_view symbol) {
  auto row = std::ranges::lower_bound(kNames, symbol, {},
                                      [](const Name& name) { return std::string_view(name.symbol); });
  return row != std::end(kNames) && row->symbol == symbol ? &*row : nullptr;
}

Lookup look_up(std::string_view base, int version, DefaultStream stream) {
  bool known = false;
  const Name* name = newest(base, version, stream, known);
  if (name == nullptr && stream == DefaultStream::per_thread) {
    name = newest(base, version, DefaultStream::legacy, known);
  }
  if (name != nullptr) return {Lookup::Outcome::found, name};
  return {known ? Lookup::Outcome::version_too_old : Lookup::Outcome::unknown_name, nullptr};
}

}  // namespace cudasim
