// The stock's part for memory of the dead: of holders, until the device shows its room, and of a helper.
#include <algorithm>

#include "broker/stock.hpp"

namespace apportion {

namespace {

// A reading may be this old (as in graveyard.cpp).
constexpr std::int64_t kReadingLagNs = 100'000'000;
// Where no reading names processes: far longer than a device takes to let go of a killed one.
constexpr std::int64_t kNamelessPatienceNs = 30'000'000'000;

}  // namespace

void Stock::retire(ChunkId id, std::int32_t pid, SteadyNs now) {
  if (book_.find(id)->slab) {
    unfreed_.push_back({id, pid, now});
  } else {
    close(id);
  }
}

void Stock::handle(const events::DeviceRoom& reading, Actions& out) {
  free_unnamed(reading);
  events::DeviceRoom event = reading;
  Graveyard::Expected expected;
  Bytes slabs{};
  for (const ChunkState state : {ChunkState::free, ChunkState::offered, ChunkState::held,
                                 ChunkState::returning, ChunkState::scrub, ChunkState::orphan}) {
    expected.alive += book_.in_state(state);
    slabs += book_.slabs_in(state);
  }
  // Slabs are ours, although the device names the helper for them. Those that are being made or freed, or
  // whose holder is dead, count as the helper's own until they are known to be there, or not to be.
  if (event.foreign) event.foreign = saturating_sub(*event.foreign, std::min(event.helper_bytes, slabs));
  expected.zombies = book_.in_state(ChunkState::zombie) - slabs_of_the_dead_at_helper();
  expected.quiet = expected.zombies.value == 0 && steps_.empty();
  Bytes settled{};
  for (const ChunkId id : graveyard_.settle(event, expected)) {
    std::erase_if(lost_, [&](const At& lost) { return lost.id == id; });
    settled += book_.find(id)->bytes;
    book_.settled(id);
  }
  if (settled.value != 0) {
    out.emplace_back(
        actions::Log{actions::Log::Level::info,
                     "recovered",
                     {{"what", "memory of dead clients"}, {"bytes", std::to_string(settled.value)}}});
  }
}

// Rules 35, 38: to free what a process still has open is undefined, and a pidfd does not say that the device
// has let go of it. A process that the device does not name any more has nothing open. A list that does not
// name the helper either, which has a context, says nothing about anybody.
void Stock::free_unnamed(const events::DeviceRoom& event) {
  std::erase_if(unfreed_, [&](const Unfreed& slab) {
    const bool named =
        slab.pid != 0 && std::find(event.pids.begin(), event.pids.end(), slab.pid) != event.pids.end();
    const std::int64_t lag = slab.pid != 0 && !event.names_all ? kNamelessPatienceNs : kReadingLagNs;
    if (named || slab.at.value + lag > event.read_at.value) return false;
    close(slab.id);
    return true;
  });
}

// The device shows these as the helper's: they are not among the memory that nobody is named for.
Bytes Stock::slabs_of_the_dead_at_helper() const {
  Bytes sum{};
  for (const Unfreed& slab : unfreed_)
    sum += book_.find(slab.id)->bytes;
  for (const auto& [id, step] : steps_) {
    const BookedChunk& chunk = *book_.find(id);
    if (chunk.slab && chunk.state == ChunkState::zombie) sum += chunk.bytes;
  }
  return sum;
}

// F52. Whatever was being done with it has no end any more.
void Stock::lose_slab(ChunkId id, const std::string& why, SteadyNs now) {
  if (Order* order = order_of(id); order != nullptr) {
    for (std::vector<ChunkId>* ids : {&order->making, &order->scrubbing, &order->ready})
      std::erase(*ids, id);
    fail(*order, "the helper that makes slabs died (" + why + ")", Refusal::Rule::helper_failed);
  }
  if (overwriting_.contains(id)) end_overwriting(id);
  steps_.erase(id);
  for (std::vector<ChunkId>* ids : {&to_scrub_, &to_free_})
    std::erase(*ids, id);
  std::erase(alone_, id);
  std::erase_if(scrub_again_, [id](const At& again) { return again.id == id; });
  std::erase_if(unfreed_, [id](const Unfreed& slab) { return slab.id == id; });
  if (book_.find(id)->state != ChunkState::zombie) book_.lost(id);
  const BookedChunk& chunk = *book_.find(id);
  graveyard_.add_slab(id, chunk.lessee, chunk.bytes, now);
}

void Stock::handle(const events::SlabsLost& event, Actions& /*out*/) {
  for (const ChunkId id : event.ids) {
    const BookedChunk* slab = book_.find(id);
    if (slab == nullptr || !slab->slab) continue;
    lose_slab(id, event.why, event.now);
  }
}

}  // namespace apportion
