// NVML's own state: how often it was initialised, and the handles it gave out.
//
// Promises: a handle is the same pointer for one device as long as the library is loaded, as programs expect
// who keep one over a shutdown. Any thread. Never: follows a handle that it did not give out.
#pragma once

#include <cstddef>
#include <optional>

#include "cudasim/nvml/types.hpp"

#define CUDASIM_NVML extern "C" __attribute__((visibility("default")))

namespace cudasim::nvml {

// Reference-counted, as NVML's.
[[nodiscard]] Return start();
[[nodiscard]] Return stop();
[[nodiscard]] bool started();

[[nodiscard]] Device* handle_of(std::size_t index);

// The device's index, or what the call must answer: kUninitialized, kInvalidArgument.
struct Found {
  Return result;
  std::size_t index;
};
[[nodiscard]] Found device_of(const Device* device);

// Copies with the terminator; kInsufficientSize where it does not fit.
[[nodiscard]] Return copy_text(const char* text, char* out, unsigned length);

}  // namespace cudasim::nvml
