// A barrier between processes, in a file that all of them map.
//
// Promises: nobody passes before all have come. Never: survives the death of one who has not come; then
// meet() says so after a minute.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace apportion::testing {

class Barrier {
 public:
  Barrier(const std::string& file, unsigned parties);
  ~Barrier();
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  [[nodiscard]] bool meet();

 private:
  struct Shared {
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> round;
  };
  Shared* shared_ = nullptr;
  unsigned parties_;
};

}  // namespace apportion::testing
