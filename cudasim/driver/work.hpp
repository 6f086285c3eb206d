// One piece of work that a program gave to a stream: what it touches, what it does when its turn comes, how
// long it takes on the virtual clock. Points and orders name a piece of work after it was given.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "cudasim/driver/context.hpp"

namespace cudasim {

struct Stream;

// Device memory that a piece of work touches.
struct Use {
  CUdeviceptr address;
  u64 bytes;
};

struct Work {
  const char* what = "";  // named in violations: "cuMemsetD8Async"
  std::vector<Use> uses = {};
  std::function<CUresult()> effect = {};  // runs once, without any lock of the engine; may be empty
  u64 duration_ns = 0;                    // virtual
  bool host_function = false;             // runs the program's code: no driver call is allowed inside
  bool fill = false;                      // a scrub: must not race with work of other streams
};

// For each stream's id, the last piece of its work that comes before.
using Order = std::map<u64, u64>;

// A place in a stream: complete when everything up to it has run. A null stream is always complete.
struct Point {
  std::shared_ptr<Stream> stream;
  u64 sequence = 0;
  u64 ready_ns = 0;  // virtual time at which it is done
  std::shared_ptr<const Order> order;
};

// Virtual durations: 2 us for a start and 1 TB/s, and 10 us for a kernel. No figure of a device.
inline u64 transfer_ns(u64 bytes) {
  return 2'000 + bytes / 1'000;
}
inline constexpr u64 kKernelNs = 10'000;
// What each query adds to the virtual clock, so that a program that polls gets there.
inline constexpr u64 kQueryNs = 1'000;

}  // namespace cudasim
