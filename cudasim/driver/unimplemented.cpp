#include "cudasim/driver/unimplemented.hpp"

#include <array>
#include <atomic>
#include <cstdio>

#include "cudasim/driver/names.hpp"
#include "cudasim/driver/unimplemented_log.hpp"

namespace cudasim {
namespace {

constexpr int kNotSupported =
    801;  // CUDA_ERROR_NOT_SUPPORTED; cuda.h would declare the functions below with types

enum Row : std::size_t {
#define CUDASIM_NAME(symbol, base, version, stream) row_##symbol,
#include "cudasim/driver/names.inc"
#undef CUDASIM_NAME
  kRows
};

std::array<std::atomic<std::uint64_t>, kRows> calls{};

int note(std::size_t row) {
  const char* symbol = names()[row].symbol;
  if (calls[row].fetch_add(1) == 0) {
    std::fprintf(stderr, "cudasim: %s is not simulated and answers CUDA_ERROR_NOT_SUPPORTED\n", symbol);
  }
  log_unimplemented(symbol, names()[row].base, kNotSupported);
  return kNotSupported;
}

}  // namespace

std::uint64_t unimplemented_calls(std::size_t index) {
  return index < kRows ? calls[index].load() : 0;
}

}  // namespace cudasim

#define CUDASIM_NAME(symbol, base, version, stream)                      \
  extern "C" __attribute__((weak, visibility("default"))) int symbol() { \
    return ::cudasim::note(::cudasim::row_##symbol);                     \
  }
#include "cudasim/driver/names.inc"
#undef CUDASIM_NAME
