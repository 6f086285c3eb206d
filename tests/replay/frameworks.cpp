// tests/replay/frameworks.hpp.
#include "tests/replay/frameworks.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tests/replay/pytorch_expandable.hpp"

namespace apportion::replay {
namespace {

// JAX classic and TensorFlow: one pool, planned differently.
class PoolFramework final : public Framework {
 public:
  using Plan = Replayed (*)(Memory&, const FrameworkParams&);
  PoolFramework(Memory& memory, const BfcPool& pool, Plan planner, const FrameworkParams& params)
      : memory_(memory), pool_(pool), planner_(planner), params_(params) {}
  Replayed plan() override { return replayed_ = planner_(memory_, params_); }
  Taken step(unsigned) override {
    take_bfc_pool(memory_, pool_, replayed_);
    Taken taken{.blocks = {},
                .wanted = replayed_.wanted.value_or(Bytes{}),
                .tries = replayed_.tries,
                .error = replayed_.error,
                .cache_bytes = {}};
    if (replayed_.pool) taken.blocks.push_back(*replayed_.pool);
    return taken;
  }

 private:
  Memory& memory_;
  BfcPool pool_;
  Plan planner_;
  FrameworkParams params_;
  Replayed replayed_;
};

Replayed plan_jax(Memory& memory, const FrameworkParams& params) {
  return jax_classic_plan(memory, {.fraction = params.fraction, .pool = {}});
}

Replayed plan_tensorflow(Memory& memory, const FrameworkParams& params) {
  return tensorflow_plan(memory, {.pool = {.first_request = params.first_request}});
}

class GrowingFramework final : public Framework {
 public:
  GrowingFramework(Memory& memory, const FrameworkParams& params)
      : jax_(memory, {.fraction = params.fraction, .growth = params.growth}) {}
  Replayed plan() override { return replayed_ = jax_.plan(); }
  Taken step(unsigned) override {
    jax_.take();
    return {.blocks = jax_.blocks(),
            .wanted = replayed_.wanted.value_or(Bytes{}),
            .tries = jax_.tries(),
            .error = jax_.error(),
            .cache_bytes = {}};
  }

 private:
  JaxGrowing jax_;
  Replayed replayed_;
};

class VllmFramework final : public Framework {
 public:
  VllmFramework(Memory& memory, const FrameworkParams& params) : vllm_(memory, params.vllm) {}
  Replayed plan() override { return vllm_.begin(); }
  [[nodiscard]] unsigned steps() const override { return 3; }
  Taken step(unsigned number) override {
    if (number == 0) vllm_.load();
    if (number == 1) vllm_.profile();
    if (number == 2) vllm_.take_cache();
    return {.blocks = vllm_.blocks(),
            .wanted = vllm_.counts().reserved,
            .tries = static_cast<unsigned>(vllm_.counts().segments_asked),
            .error = vllm_.error(),
            .cache_bytes = vllm_.cache_bytes()};
  }

 private:
  Vllm vllm_;
};

// PyTorch wants its tensors, not a share: a run in what is free.
template <typename Allocator>
class TorchFramework final : public Framework {
 public:
  TorchFramework(Memory& memory, const FrameworkParams& params)
      : memory_(memory), fragmenting_(params.fragmenting), allocator_(memory) {}
  Replayed plan() override {
    Replayed replayed = read_numbers(memory_);
    room_ = replayed.wanted = replayed.told_free;
    error_ = replayed.error;
    return replayed;
  }
  Taken step(unsigned) override {
    if (room_) {
      const Status done =
          run_steps(allocator_, fragmenting_ ? fragmenting_run(*room_) : small_training_run(*room_));
      if (!done) error_ = done.error().message;
    }
    return {.blocks = allocator_.segments(),
            .wanted = allocator_.counts().reserved,
            .tries = static_cast<unsigned>(allocator_.counts().segments_asked),
            .error = error_,
            .cache_bytes = {}};
  }

 private:
  Memory& memory_;
  bool fragmenting_;
  Allocator allocator_;
  std::optional<Bytes> room_;
  std::string error_;
};

constexpr std::array<std::string_view, 6> kNames{"jax",  "jax-growing", "tensorflow",
                                                 "vllm", "pytorch",     "pytorch-expandable"};

}  // namespace

bool is_framework(std::string_view name) {
  return std::ranges::find(kNames, name) != kNames.end();
}

std::unique_ptr<Framework> framework_named(std::string_view name, Memory& memory,
                                           const FrameworkParams& params) {
  const BfcPool pool{.first_request = params.first_request};
  if (name == "jax") return std::make_unique<PoolFramework>(memory, pool, plan_jax, params);
  if (name == "tensorflow") return std::make_unique<PoolFramework>(memory, pool, plan_tensorflow, params);
  if (name == "jax-growing") return std::make_unique<GrowingFramework>(memory, params);
  if (name == "vllm") return std::make_unique<VllmFramework>(memory, params);
  if (name == "pytorch") return std::make_unique<TorchFramework<PytorchNative>>(memory, params);
  if (name == "pytorch-expandable")
    return std::make_unique<TorchFramework<PytorchExpandable>>(memory, params);
  return nullptr;
}

}  // namespace apportion::replay
