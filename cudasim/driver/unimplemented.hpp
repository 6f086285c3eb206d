// Driver functions that the simulator exports but does not have: each is counted, logged once by name, and
// answers CUDA_ERROR_NOT_SUPPORTED. A function that is written becomes the answer by being linked: these are
// weak.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cudasim {

// Calls of names()[index] that found no implementation, in this process. Any thread.
[[nodiscard]] std::uint64_t unimplemented_calls(std::size_t index);

}  // namespace cudasim
