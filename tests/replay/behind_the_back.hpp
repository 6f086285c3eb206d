// Two programs share a chunk behind the broker's back: CUDA lets whoever maps a chunk pass it on (rule 21),
// and no broker can stop it. For the demo's `--break overlap`, which shows that the census sees it.
#pragma once

#include <string>

#include "gpu/mapping.hpp"

namespace apportion::replay {

// Exports the chunk at `address` and gives it to the program that connects to `path`. Waits for it, 30 s at
// most.
[[nodiscard]] Status pass_chunk(const Device& device, CUdeviceptr address, const std::string& path);

// Connects to `path` (waits until it is there, 30 s at most) and maps the chunk of `size` that comes.
[[nodiscard]] Result<Mapping> take_chunk(const Device& device, Bytes size, const std::string& path);

}  // namespace apportion::replay
