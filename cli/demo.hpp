// `apportion demo`: the race of programs that take memory the way JAX does; first on the bare device, then
// through a broker. Everything it starts it ends, and its files are gone afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shm/result.hpp"

namespace apportion {

struct DemoOptions {
  std::string device = "sim:80GiB";
  unsigned clients = 4;
  bool all_orders = false;
  bool json = false;
  std::uint64_t seed = 1;
  std::string break_name{};  // hidden: makes a promised zero another number, for the test of the demo itself
};

// One program of the race. Sizes in bytes; none where it did not get that far.
struct Racer {
  int pid = 0;
  std::optional<std::uint64_t> told{};
  std::optional<std::uint64_t> wanted{};
  std::uint64_t got = 0;
  bool ok = false;
  std::string job{};  // the broker's half only
  std::uint64_t guarantee = 0;
  std::uint64_t limit = 0;
};

struct DemoResult {
  std::vector<Racer> bare;
  std::vector<Racer> broker;  // of the last order
  std::uint64_t device_bytes = 0;
  std::uint64_t pool_bytes = 0;
  unsigned orders = 0;
  unsigned distinct_results = 0;  // of the broker's half: 1 where every order gave the same
  std::optional<std::uint64_t>
      overlap_bytes;  // bytes that two programs had mapped at once; none on a real device
  bool simulated = false;
};

// Errors: one line; whatever was started is ended.
[[nodiscard]] Result<DemoResult> run_demo(const DemoOptions& options);

[[nodiscard]] std::string demo_text(const DemoResult& result);
[[nodiscard]] std::string demo_json(const DemoResult& result);

}  // namespace apportion
