// What the load rule needs to know of a device: a plain value, made by gpu/, judged by config/, which know
// nothing of each other.
#pragma once

#include "shm/bytes.hpp"

namespace apportion {

struct DeviceFacts {
  Bytes total{};                   // T, as NVML gives it
  Bytes granularity{};             // of physical allocations; a chunk is a multiple of it
  Bytes in_use{};                  // by others than this broker, now; 0 where unknown
  bool display = false;            // a display runs on it
  bool integrated = false;         // its memory is the host's
  Bytes helper_context = 512_MiB;  // until measured
};

}  // namespace apportion
