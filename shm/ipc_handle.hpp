// The 64 opaque bytes by which another process of the same user opens a slab (cudaIpcMemHandle_t).
//
// Whoever has them can open the slab, as long as its owner lives: they go where only the sessions of one job
// look (the job page), and over the helper's private socket. Never: printed or logged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace apportion {

inline constexpr std::size_t kIpcHandleBytes = 64;
using IpcHandle = std::array<std::uint8_t, kIpcHandleBytes>;

}  // namespace apportion
