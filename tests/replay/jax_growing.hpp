// How the newest JAX takes memory ("0.75+"): one prefix of 75 % of the total it is told, all of it or
// nothing, then as much more as is needed in steps of 64 MiB, behind the prefix in one reserved range, for as
// long as the device says that a step is free. The prefix never shrinks. Its public source and the sequence:
// tests/replay/README.md. Facts only, no code of it.
#pragma once

#include <vector>

#include "tests/replay/bfc_pool.hpp"

namespace apportion::replay {

struct JaxGrowingParams {
  double fraction = 0.75;
  Bytes pool_unit = 2_MiB;  // the prefix is rounded up to it
  Bytes step = 64_MiB;
  Bytes growth;  // what the program needs beyond its prefix
};

class JaxGrowing {
 public:
  // `memory` has been started and outlives it. What is held goes with the object where it is in a range.
  JaxGrowing(Memory& memory, const JaxGrowingParams& params) : memory_(memory), params_(params) {}

  // The first half: reads its numbers; wants the prefix and the growth.
  [[nodiscard]] Replayed plan();
  // The second half: the prefix, then step by step.
  void take();

  [[nodiscard]] const std::vector<Block>& blocks() const { return blocks_; }
  [[nodiscard]] unsigned tries() const { return tries_; }  // requests made, refused ones included
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  bool extend(Bytes size);

  Memory& memory_;
  JaxGrowingParams params_;
  Bytes total_;
  Bytes prefix_;
  std::unique_ptr<Range> range_;  // null: the memory places each piece itself
  std::vector<Block> blocks_;     // in a range: one, which grows
  unsigned tries_ = 0;
  std::string error_;
};

}  // namespace apportion::replay
