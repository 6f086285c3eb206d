// The broker's start: config, device, load rule, lock, socket, journal; in this order, so that every refusal
// comes before any memory is taken and changes nothing.
//
// Promises: what a predecessor left with the keeper is taken over (then the core starts closed, until
// recovery is built). Never: returns while the broker serves; the result is the exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shm/fd.hpp"

namespace apportion {

struct BrokerOptions {
  std::string config;  // path; empty: the usual places
  Fd keeper_channel;
  std::uint32_t restarts = 0;
  std::optional<std::uint32_t> helper_patience_ms = {};  // for tests
};

[[nodiscard]] int run_broker(BrokerOptions options);

}  // namespace apportion
