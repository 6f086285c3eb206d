// The stock's part that has chunks overwritten: for a grant, before their bytes become loose, and ahead.
//
// Each is asked for at most kTries times in a row. What still could not be overwritten then is as it was: a
// grant is refused with the reason, and a return, which must not become loose as it is, stays charged and is
// tried again at leisure (F38, F52).
#include <algorithm>
#include <utility>

#include "broker/stock.hpp"

namespace apportion {

namespace {

constexpr std::uint32_t kTries = 3;
constexpr std::int64_t kSoonNs = 100'000'000;
constexpr std::int64_t kLeisureNs = 5'000'000'000;
// A request that comes meanwhile waits for no more than this.
constexpr std::size_t kAheadBatch = 64;

}  // namespace

void Stock::begin_scrub(ChunkId id, Scrub::For what_for) {
  steps_[id] = Step::scrubbing;
  scrubs_[id] = {what_for, 0};
  to_scrub_.push_back(id);
}

void Stock::handle(const events::Scrubbed& event, Actions& /*out*/) {
  for (const ChunkId id : event.ids) {
    if (!step_is(id, Step::scrubbing)) continue;
    steps_.erase(id);
    const Scrub scrub = scrubs_.extract(id).mapped();
    switch (scrub.what_for) {
      case Scrub::For::grant: {
        Order& order = *order_of(id);
        std::erase(order.scrubbing, id);
        book_.scrubbed_offer(id);
        order.ready.push_back(id);
        break;
      }
      case Scrub::For::loosening:
        book_.begin_unmake(id);
        close(id);
        break;
      case Scrub::For::later:
        book_.scrubbed_free(id);
        if (!keeps(*book_.find(id))) discard(id);
        break;
    }
  }
}

void Stock::handle(const events::ScrubFailed& event, Actions& out) {
  std::size_t in_vain = 0;
  for (const ChunkId id : event.ids) {
    if (!step_is(id, Step::scrubbing)) continue;
    Scrub& scrub = scrubs_[id];
    ++scrub.failures;
    if (scrub.failures < kTries) {
      scrub_again_.push_back({id, {event.now.value + kSoonNs}});
      continue;
    }
    in_vain += scrub.failures == kTries ? 1 : 0;
    if (scrub.what_for == Scrub::For::loosening && book_.find(id)->lessee) {
      scrub_again_.push_back({id, {event.now.value + kLeisureNs}});
    } else {
      end_scrub_in_vain(id, event.why);
    }
  }
  if (in_vain == 0) return;
  out.emplace_back(actions::Log{
      actions::Log::Level::error,
      "scrub_failed",
      {{"chunks", std::to_string(in_vain)}, {"tries", std::to_string(kTries)}, {"why", event.why}}});
}

// As it was. Who waits for it is told; a loop of tries without an end would help nobody.
void Stock::end_scrub_in_vain(ChunkId id, const std::string& why) {
  steps_.erase(id);
  const Scrub scrub = scrubs_.extract(id).mapped();
  const std::string text = "memory could not be overwritten before it is granted, tried " +
                           std::to_string(kTries) + " times: " + why;
  if (scrub.what_for == Scrub::For::grant) {
    Order& order = *order_of(id);
    std::erase(order.scrubbing, id);
    fail(order, text, Refusal::Rule::scrub_failed);
  }
  if (scrub.what_for == Scrub::For::loosening) {
    for (Order& order : orders_)
      if (order.missing > 0) fail(order, text, Refusal::Rule::scrub_failed);
  }
  ahead_off_ = true;
  book_.scrub_failed(id);
  if (!keeps(*book_.find(id))) discard(id);
}

bool Stock::stuck(ChunkId id) const {
  const auto scrub = scrubs_.find(id);
  return scrub != scrubs_.end() && scrub->second.failures >= kTries;
}

// What a waiting order may count on: loosened, or free again.
Bytes Stock::scrub_coming() const {
  Bytes sum{};
  for (const auto& [id, scrub] : scrubs_) {
    if (scrub.what_for != Scrub::For::grant && scrub.failures < kTries) sum += book_.find(id)->bytes;
  }
  return sum;
}

void Stock::disturb() {
  disturbed_ = true;
  ahead_due_ = false;
  ahead_off_ = false;
}

bool Stock::wants_ahead() const {
  return scrub_used_ && !ahead_off_ && setup_.reserve == Reserve::all &&
         book_.pick_free([](const Past& past) { return past.clean ? std::nullopt : std::optional(0); })
             .has_value();
}

void Stock::scrub_ahead() {
  if (!ahead_due_ || !orders_.empty() || !scrubs_.empty() || !wants_ahead()) return;
  for (std::size_t i = 0; i < kAheadBatch; ++i) {
    const std::optional<ChunkId> id = book_.pick_free(
        [](const Past& past) { return past.clean ? std::nullopt : std::optional(past.owner ? 0 : 1); });
    if (!id) return;
    book_.begin_scrub(*id);
    begin_scrub(*id, Scrub::For::later);
  }
}

}  // namespace apportion
