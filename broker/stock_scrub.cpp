// The stock's part that has chunks overwritten: for a grant, before their bytes become loose, and ahead.
//
// What fails for several chunks at once blames none of them: each is asked for again alone, one after the
// other, so that one bad chunk cannot fail its neighbours. Each is asked for at most kTries times in a row.
// What still could not be overwritten then is as it was: without any helper, who waits is refused with the
// reason; a chunk that the driver refused alone is set aside (the last to be taken again), and who waited for
// it gets another; three of these and it is refused. A return, which must not become loose as it is, stays
// charged and is tried again at leisure (F38).
//
// What a helper died over is a dead holder's: its GPU work may not be over, and would hit the next owner. It
// is retired as that of a dead client, and what is made of its bytes is overwritten again (F52). Slabs are
// lost with their helper (stock_dead.cpp).
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

constexpr const char* kInVain = "memory could not be overwritten before it is granted";

std::string in_vain(const std::string& why) {
  return std::string(kInVain) + ", tried " + std::to_string(kTries) + " times: " + why;
}

}  // namespace

void Stock::begin_scrub(ChunkId id, Overwriting::For what_for, bool alone) {
  steps_[id] = Step::scrubbing;
  // One that was set aside gets one more try, and nobody else is put at risk.
  const bool stubborn = book_.find(id)->past.stubborn;
  overwriting_[id] = {what_for, stubborn ? kTries - 1 : 0, stubborn || alone};
  if (stubborn || alone) {
    alone_.push_back(id);
  } else {
    to_scrub_.push_back(id);
  }
}

void Stock::ask_again(ChunkId id) {
  if (!overwriting_.at(id).alone) {
    to_scrub_.push_back(id);
  } else if (alone_now_ == id) {
    alone_now_ = {};
    alone_.push_front(id);
  } else {
    alone_.push_back(id);
  }
}

void Stock::ask_helper(Actions& out) {
  const auto ask = [&](const std::vector<ChunkId>& ids) {
    actions::ScrubChunks scrub;
    for (const ChunkId id : ids)
      scrub.chunks.push_back({id, book_.find(id)->bytes, book_.find(id)->slab});
    out.emplace_back(std::move(scrub));
  };
  if (!to_scrub_.empty()) ask(std::exchange(to_scrub_, {}));
  if (alone_now_ || alone_.empty()) return;
  alone_now_ = alone_.front();
  alone_.pop_front();
  ask({alone_now_});
}

Stock::Overwriting Stock::end_overwriting(ChunkId id) {
  steps_.erase(id);
  if (alone_now_ == id) alone_now_ = {};
  return overwriting_.extract(id).mapped();
}

bool Stock::withdraw(ChunkId id) {
  const bool waited = std::erase(to_scrub_, id) + std::erase(alone_, id) +
                          std::erase_if(scrub_again_, [&](const At& again) { return again.id == id; }) !=
                      0;
  if (!waited) return false;
  end_overwriting(id);
  book_.scrub_failed(id);
  if (!keeps(*book_.find(id))) discard(id);
  return true;
}

// What is ready goes back as it was; what is being overwritten is overwritten for whoever comes next.
void Stock::let_go(Order& order) {
  for (const ChunkId id : std::exchange(order.ready, {}))
    roll_back(id);
  for (const ChunkId id : std::exchange(order.scrubbing, {})) {
    if (withdraw(id)) continue;
    book_.leave_scrub_alone(id);
    overwriting_.at(id).what_for = Overwriting::For::later;
  }
}

void Stock::handle(const events::Scrubbed& event, Actions& /*out*/) {
  for (const ChunkId id : event.ids) {
    if (!step_is(id, Step::scrubbing)) continue;
    switch (end_overwriting(id).what_for) {
      case Overwriting::For::grant: {
        Order& order = *order_of(id);
        std::erase(order.scrubbing, id);
        book_.scrubbed_offer(id);
        order.ready.push_back(id);
        break;
      }
      case Overwriting::For::loosening:
        book_.begin_unmake(id);
        close(id);
        break;
      case Overwriting::For::later:
        book_.scrubbed_free(id);
        if (!keeps(*book_.find(id))) discard(id);
        break;
    }
  }
}

void Stock::handle(const events::ScrubFailed& event, Actions& out) {
  using How = events::ScrubFailed::How;
  std::vector<ChunkId> ids = event.ids;
  std::erase_if(ids, [&](ChunkId id) { return !step_is(id, Step::scrubbing); });
  if (event.how == How::lost) return lose(ids, event, out);
  std::size_t given_up = 0;
  for (const ChunkId id : ids) {
    Overwriting& each = overwriting_.at(id);
    if (event.how == How::refused && event.ids.size() > 1) {
      each.alone = true;
      alone_.push_back(id);
      continue;
    }
    ++each.failures;
    if (each.failures < kTries) {
      scrub_again_.push_back({id, {event.now.value + kSoonNs}});
      continue;
    }
    given_up += each.failures == kTries ? 1 : 0;
    if (each.what_for == Overwriting::For::loosening && book_.find(id)->lessee) {
      if (alone_now_ == id) alone_now_ = {};
      scrub_again_.push_back({id, {event.now.value + kLeisureNs}});
    } else if (event.how == How::refused) {
      set_aside(id, event.why);
    } else {
      give_up(id, event.why);
    }
  }
  if (given_up == 0) return;
  out.emplace_back(actions::Log{
      actions::Log::Level::error,
      "scrub_failed",
      {{"chunks", std::to_string(given_up)}, {"tries", std::to_string(kTries)}, {"why", event.why}}});
}

// Nothing could be tried. As it was; a loop of tries without an end would help nobody.
void Stock::give_up(ChunkId id, const std::string& why) {
  const Overwriting ended = end_overwriting(id);
  if (ended.what_for == Overwriting::For::grant) {
    Order& order = *order_of(id);
    std::erase(order.scrubbing, id);
    fail(order, in_vain(why), Refusal::Rule::scrub_failed);
  }
  if (ended.what_for == Overwriting::For::loosening) {
    for (Order& order : orders_)
      if (order.missing > 0) fail(order, in_vain(why), Refusal::Rule::scrub_failed);
  }
  stop_ahead();
  book_.scrub_failed(id);
  if (!keeps(*book_.find(id))) discard(id);
}

// It is this chunk: the driver refused it alone.
void Stock::set_aside(ChunkId id, const std::string& why) {
  const Overwriting ended = end_overwriting(id);
  if (ended.what_for == Overwriting::For::grant) {
    Order& order = *order_of(id);
    std::erase(order.scrubbing, id);
    ++order.missing;
    mishap(order, in_vain(why));
  }
  if (ended.what_for == Overwriting::For::loosening) {
    for (Order& order : orders_)
      if (order.missing > 0) mishap(order, in_vain(why));
  }
  stop_ahead();
  book_.scrub_failed(id);
  book_.mark_stubborn(id);
  if (!keeps(*book_.find(id))) discard(id);
}

// Two stores: charged to nobody as SCRUB, then ZOMBIE. A crash in between leaves SCRUB, which the next broker
// retires (docs/journal.md).
void Stock::lose(const std::vector<ChunkId>& ids, const events::ScrubFailed& event, Actions& out) {
  Bytes bytes{};
  std::vector<Order*> orders;
  for (const ChunkId id : ids) {
    bytes += book_.find(id)->bytes;
    if (end_overwriting(id).what_for == Overwriting::For::grant) {
      Order& order = *order_of(id);
      std::erase(order.scrubbing, id);
      ++order.missing;
      book_.leave_scrub_alone(id);
      if (std::find(orders.begin(), orders.end(), &order) == orders.end()) orders.push_back(&order);
    }
    book_.bury(id);
    lost_.push_back({id, event.now});
    close(id);
  }
  for (Order* order : orders)
    mishap(*order, std::string(kInVain) + ": " + event.why);
  stop_ahead();
  if (bytes.value == 0) return;
  out.emplace_back(actions::Log{
      actions::Log::Level::warning,
      "lost",
      {{"what", "chunks of the helper"}, {"bytes", std::to_string(bytes.value)}, {"why", event.why}}});
}

void Stock::mishap(Order& order, const std::string& text) {
  order.mishap = text;
  if (++order.mishaps >= kTries) fail(order, text, Refusal::Rule::scrub_failed);
}

bool Stock::stuck(ChunkId id) const {
  const auto found = overwriting_.find(id);
  return found != overwriting_.end() && found->second.failures >= kTries;
}

// What a waiting order may count on: loosened, or free again.
Bytes Stock::scrub_coming() const {
  Bytes sum{};
  for (const auto& [id, each] : overwriting_) {
    if (each.what_for != Overwriting::For::grant && each.failures < kTries) sum += book_.find(id)->bytes;
  }
  return sum;
}

Bytes Stock::lost_coming() const {
  Bytes sum{};
  for (const At& lost : lost_)
    sum += book_.find(lost.id)->bytes;
  return sum;
}

void Stock::disturb() {
  disturbed_ = true;
  ahead_due_ = false;
  ahead_off_ = false;
}

std::optional<ChunkId> Stock::pick_for_later() const {
  return book_.pick_free([](const Past& past) {
    return past.clean || past.stubborn ? std::nullopt : std::optional(past.owner ? 0 : 1);
  });
}

// It failed: not again before somebody asks. A driver that overwrites nothing is not asked for chunk after
// chunk, and no helper after helper is lost, where nobody waits.
void Stock::stop_ahead() {
  ahead_off_ = true;
  std::vector<ChunkId> ahead;
  for (const auto& [id, each] : overwriting_)
    if (each.what_for == Overwriting::For::later) ahead.push_back(id);
  for (const ChunkId id : ahead)
    withdraw(id);
}

bool Stock::wants_ahead() const {
  return scrub_used_ && !ahead_off_ && setup_.reserve == Reserve::all && pick_for_later().has_value();
}

void Stock::scrub_ahead() {
  if (!ahead_due_ || !orders_.empty() || !overwriting_.empty() || !wants_ahead()) return;
  for (std::size_t i = 0; i < kAheadBatch; ++i) {
    const std::optional<ChunkId> id = pick_for_later();
    if (!id) return;
    book_.begin_scrub(*id);
    begin_scrub(*id, Overwriting::For::later, false);
  }
}

}  // namespace apportion
