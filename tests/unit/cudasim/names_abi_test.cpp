// The table against NVIDIA's own typedefs, at compile time: the function type that a program casts to, named
// by base name and version, must be the type of the symbol the table gives. An old ABI given for a new one
// does not compile.
#define __CUDA_API_VERSION_INTERNAL
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

#include <type_traits>

#include "tests/support/catch.hpp"

#define PFN_SUFFIX_legacy(base, version) PFN_##base##_v##version
#define PFN_SUFFIX_ptds(base, version) PFN_##base##_v##version##_ptds
#define PFN_SUFFIX_ptsz(base, version) PFN_##base##_v##version##_ptsz

#define CUDASIM_INTEROP_NAME(symbol, base, version, stream)
#define CUDASIM_NAME(symbol, base, version, stream)                                    \
  static_assert(std::is_same_v<PFN_SUFFIX_##stream(base, version), decltype(&symbol)>, \
                #symbol " is not what " #base " means to a program of version " #version);
#include "cudasim/driver/names.inc"
#undef CUDASIM_NAME

TEST_CASE("every driver symbol has the type of the typedef that its name and version select") {
  int checked = 0;
#define CUDASIM_INTEROP_NAME(symbol, base, version, stream)
#define CUDASIM_NAME(symbol, base, version, stream) ++checked;
#include "cudasim/driver/names.inc"
#undef CUDASIM_NAME
  CHECK(checked == 637);
}
