// tests/replay/tensors.hpp.
#include "tests/replay/tensors.hpp"

#include <map>

namespace apportion::replay {

Error TensorAllocator::out_of_memory(Memory& memory, Bytes size) const {
  auto told = memory.told();
  if (!told) return told.error();
  return Error{Errc::out_of_memory, "tried to allocate " + to_text(size) + "; of " + to_text(told->total) +
                                        ", " + to_text(told->free) + " are free; " +
                                        to_text(counts_.allocated) + " in tensors, " +
                                        to_text(counts_.reserved) + " reserved"};
}

std::vector<TensorStep> small_training_run(Bytes room) {
  return {
      {"bias", 4_KiB},
      {"scale", 600_KiB},
      {"weight.0", 1_MiB + 512_KiB},
      {"weight.1", 8_MiB},
      {"embedding", 33_MiB},
      {"act.0", 5_MiB},
      {"act.1", 12_MiB},
      {"act.2", 48_MiB},
      {"act.0", {}},
      {"act.1", {}},
      {"act.2", {}},
      {"moment.1", 5_MiB},
      {"batch", 47_MiB},
      {"moment.1", {}},
      {"batch", {}},
      // Fits only when the segments of act.1, act.2 and batch have gone back.
      {"whole", round_down(saturating_sub(room, 100_MiB), 2_MiB)},
  };
}

std::vector<TensorStep> fragmenting_run(Bytes room) {
  const Bytes large = round_up(Bytes{room.value / 21 * 11}, 2_MiB);  // 11 GiB of 21
  std::vector<TensorStep> steps{{"large", large}, {"large", {}}};
  for (std::uint64_t i = 0; i < Bytes{large.value / 2} / 16_MiB; ++i)
    steps.push_back({"small." + std::to_string(i), 16_MiB});
  steps.push_back({"large", large});
  return steps;
}

Status run_steps(TensorAllocator& allocator, const std::vector<TensorStep>& steps) {
  std::map<std::string, std::uint64_t> tensors;
  for (const TensorStep& step : steps) {
    if (step.size.value == 0) {
      const auto found = tensors.find(step.name);
      APPORTION_CHECK(found != tensors.end());
      allocator.free(found->second);
      tensors.erase(found);
      continue;
    }
    auto address = allocator.allocate(step.size);
    if (!address) return Error{address.error().code, step.name + ": " + address.error().message};
    tensors[step.name] = *address;
  }
  return Done{};
}

}  // namespace apportion::replay
