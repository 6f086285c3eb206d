// Gates M1 and M3: mapped over live bytes at their peaks; M7: whether a trace fits at all. Exact: the arena
// over a model of a device.
//
// The trace is replayed twice, so that what the first replay left in pieces counts.
#include <array>
#include <sstream>

#include "bench/gates.hpp"
#include "bench/replay.hpp"
#include "tests/unit/libclient/model_source.hpp"

namespace apportion::bench {
namespace {

class OverModel {
 public:
  using Handle = Address;
  // A device of whole chunks, rounded down.
  OverModel(Bytes device, Bytes chunk)
      : model_(static_cast<std::uint32_t>(device / chunk), chunk,
               ArenaRanges::for_device(device, chunk, 2_MiB).growth_chunks) {}
  Address allocate(std::uint64_t bytes, std::uint64_t stream) {
    const Result<Address> block = model_.arena.allocate({bytes}, stream);
    model_.source.calls.clear();
    if (!block) error_ = block.error().message;
    return block ? *block : 0;
  }
  void free(Address block, std::uint64_t stream) { (void)model_.arena.deallocate(block, stream).ok(); }
  static bool none(Address block) { return block == 0; }
  void free_all(std::vector<Address>& blocks) {
    for (Address& block : blocks) {
      if (block != 0) free(block, 0);
      block = 0;
    }
  }
  [[nodiscard]] testing::ModelArena& model() { return model_; }
  // Why the last allocation that failed did.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  std::string error_;
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

// How many of kReplays do not come to their end on a device of `factor` times the peak. One that fails frees
// what it has, as a program would that is restarted in the same session.
Status measure_completion(Run& run, const NamedTrace& named, double factor) {
  constexpr int kReplays = 5;
  const Replay trace(named.trace);
  const auto room = static_cast<std::uint64_t>(static_cast<double>(trace.peak_bytes) * factor);
  OverModel over(Bytes{room}, 32_MiB);
  std::vector<Address> blocks(trace.blocks);
  int failed = 0;
  std::string note;
  for (int pass = 0; pass < kReplays; ++pass) {
    if (replay(over, trace, blocks)) continue;
    ++failed;
    if (note.empty()) note = "replay " + std::to_string(pass + 1) + ": " + over.error();
    over.free_all(blocks);
  }
  std::ostringstream what;
  what << "replays of " << kReplays << " that fail in " << factor << " x live peak";
  run.report.add_exact(
      "M7", named.name, what.str(), 0, failed,
      {{"room_bytes", static_cast<double>(room)}, {"live_bytes", static_cast<double>(trace.peak_bytes)}});
  run.report.gates.back().note = note;
  return Done{};
}

}  // namespace

Status measure_completions(Run& run) {
  for (const NamedTrace& trace : run.traces)
    for (const double factor : {1.02, 1.5})
      if (Status measured = measure_completion(run, trace, factor); !measured) return measured;
  return Done{};
}

Status measure_memory(Run& run) {
  return measure_all(run, "M1", false, {1.02, 1.005});
}

Status measure_holes(Run& run) {
  return measure_all(run, "M3", true, {1.01, 1.01});
}

}  // namespace apportion::bench
