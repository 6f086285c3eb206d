// Gates M1 and M3: mapped over live bytes at their peaks. Exact: the arena over a model of a device.
//
// The trace is replayed twice, so that what the first replay left in pieces counts.
#include <array>

#include "bench/gates.hpp"
#include "bench/replay.hpp"
#include "tests/unit/libclient/model_source.hpp"

namespace apportion::bench {
namespace {

class OverModel {
 public:
  using Handle = Address;
  OverModel(Bytes device, Bytes chunk)
      : model_(static_cast<std::uint32_t>(device / chunk), chunk,
               ArenaRanges::for_device(device, chunk, 2_MiB).growth_chunks) {}
  Address allocate(std::uint64_t bytes, std::uint64_t stream) {
    const Result<Address> block = model_.arena.allocate({bytes}, stream);
    model_.source.calls.clear();
    return block ? *block : 0;
  }
  void free(Address block, std::uint64_t stream) { (void)model_.arena.deallocate(block, stream).ok(); }
  static bool none(Address block) { return block == 0; }
  [[nodiscard]] testing::ModelArena& model() { return model_; }

 private:
  testing::ModelArena model_;
};

Status measure(Run& run, const std::string& id, const NamedTrace& named, Bytes chunk, double allowed) {
  const Replay trace(named.trace);
  OverModel over(round_up(Bytes{2 * trace.peak_bytes}, 1_GiB), chunk);
  std::vector<Address> blocks(trace.blocks);
  for (int pass = 0; pass < 2; ++pass)
    if (!replay(over, trace, blocks))
      return Error{Errc::out_of_memory, named.name + ": twice its peak is not enough for the arena"};
  if (const std::string broken = over.model().broken(); !broken.empty())
    return Error{Errc::invalid, named.name + ": the arena is broken: " + broken};
  const Result<ArenaStats> stats = over.model().arena.stats();
  if (!stats) return stats.error();
  run.report.add_exact(
      id, named.name, "mapped / live peak, chunks of " + to_text(chunk), allowed,
      static_cast<double>(stats->peak_pool_bytes.value) / static_cast<double>(trace.peak_bytes),
      {{"mapped_bytes", static_cast<double>(stats->peak_pool_bytes.value)},
       {"live_bytes", static_cast<double>(trace.peak_bytes)}});
  return Done{};
}

Status measure_all(Run& run, const std::string& id, bool adversarial, std::array<double, 2> allowed) {
  for (const NamedTrace& trace : run.traces) {
    if (trace.adversarial != adversarial) continue;
    if (Status large = measure(run, id, trace, 32_MiB, allowed[0]); !large) return large;
    if (Status small = measure(run, id, trace, 2_MiB, allowed[1]); !small) return small;
  }
  return Done{};
}

}  // namespace

Status measure_memory(Run& run) {
  return measure_all(run, "M1", false, {1.02, 1.005});
}

Status measure_holes(Run& run) {
  return measure_all(run, "M3", true, {1.01, 1.01});
}

}  // namespace apportion::bench
