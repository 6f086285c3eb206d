#include "cudasim/unimplemented.hpp"

#include <array>
#include <atomic>
#include <cstdio>

#include "cudasim/names.hpp"

namespace cudasim {
namespace {

constexpr int kNotSupported =
    801;  // CUDA_ERROR_NOT_SUPPORTED; cuda.h would declare the functions below with types

enum Row : std::size_t {
#define CUDASIM_NAME(symbol, base, version, stream) row_##symbol,
#include "cudasim/names.inc"
#undef CUDASIM_NAME
  kRows
};

std::array<std::atomic<std::uint64_t>, kRows> calls{};

}  // namespace

std::uint64_t unimplemented_calls(std::size_t index) {
  return index < kRows ? calls[index].load() : 0;
}

namespace {

int note(std::size_t row) {
  if (calls[row].fetch_add(1) == 0) {
    std::fprintf(stderr, "cudasim: %s is not simulated and answers CUDA_ERROR_NOT_SUPPORTED\n",
                 names()[row].symbol);
  }
  return kNotSupported;
}

}  // namespace
}  // namespace cudasim

#define CUDASIM_NAME(symbol, base, version, stream)                      \
  extern "C" __attribute__((weak, visibility("default"))) int symbol() { \
    return ::cudasim::note(::cudasim::row_##symbol);                     \
  }
#include "cudasim/names.inc"
#undef CUDASIM_NAME
