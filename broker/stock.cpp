#include "broker/stock.hpp"

#include <algorithm>

namespace apportion {

namespace {

constexpr std::int64_t kFirstBackoffNs = 100'000'000;
constexpr std::int64_t kLongestBackoffNs = 5'000'000'000;
constexpr std::int64_t kFreeAgainNs = 5'000'000'000;
constexpr std::int64_t kQuietNs = 1'000'000'000;  // before free chunks are overwritten ahead
constexpr int kLast = 100;                        // above any rank
// How long orders count on what a dead helper had. A healthy device shows it within a second.
constexpr std::int64_t kLostPatienceNs = 10'000'000'000;

}  // namespace

Stock::Stock(Book& book, const CoreSetup& setup)
    : book_(book), setup_(setup), hygiene_(setup.jobs), graveyard_(setup.granularity) {}

void Stock::start(SteadyNs now, Actions& out) {
  fill_until_ = {now.value + setup_.fill_patience_ns};
  if (setup_.reserve == Reserve::leased) filled_ = true;
  pump(out);
}

void Stock::order(Order order) {
  disturb();
  orders_.push_back(std::move(order));
}

void Stock::cancel(SessionId session) {
  for (auto order = orders_.begin(); order != orders_.end();) {
    if (order->session != session) {
      ++order;
      continue;
    }
    let_go(*order);
    order = orders_.erase(order);  // what is being made for it becomes free, or is unmade again
  }
}

bool Stock::keeps(const BookedChunk& chunk) const {
  return !chunk.slab && chunk.bytes == setup_.chunk && setup_.reserve == Reserve::all;
}

void Stock::close(ChunkId id) {
  const bool slab = book_.find(id)->slab;
  steps_[id] = slab ? Step::closing : Step::deleting;
  (slab ? to_free_ : to_delete_).push_back(id);
}

void Stock::discard(ChunkId id) {
  const BookedChunk& chunk = *book_.find(id);
  // RETURNING: of its lessee. Else nobody has it, and its past says who had it.
  const bool dirty = chunk.state == ChunkState::returning
                         ? !hygiene_.gives_away(book_.find(chunk.lessee)->job)
                         : hygiene_.needs_scrub_to_loosen(chunk.past);
  if (dirty) {
    book_.begin_scrub(id);
    return begin_scrub(id, Overwriting::For::loosening, false);
  }
  book_.begin_unmake(id);
  close(id);
}

void Stock::put_back(ChunkId id) {
  disturb();
  const BookedChunk& chunk = *book_.find(id);
  const JobIndex job = book_.find(chunk.lessee)->job;
  if (hygiene_.unmakes_returns(job) || !keeps(chunk)) return discard(id);
  book_.put_back(id, hygiene_.binds_returns(job));
}

void Stock::roll_back(ChunkId id) {
  book_.roll_back(id);
  if (!keeps(*book_.find(id))) discard(id);
}

void Stock::begin_make(Bytes bytes, Order* order, Actions& out) {
  const bool slab = order != nullptr && order->slab;
  const ChunkId id = book_.begin_make(bytes, slab);
  steps_[id] = Step::making;
  if (order != nullptr) {
    --order->missing;
    order->making.push_back(id);
  }
  if (slab) {
    out.emplace_back(actions::MakeSlab{id, bytes});
  } else {
    out.emplace_back(actions::MakeChunk{id, bytes});
  }
}

bool Stock::step_is(ChunkId id, Step step) const {
  const auto found = steps_.find(id);
  return found != steps_.end() && found->second == step;
}

Stock::Order* Stock::order_of(ChunkId id) {
  for (Order& order : orders_) {
    for (const std::vector<ChunkId>* ids : {&order.making, &order.scrubbing, &order.ready}) {
      if (std::find(ids->begin(), ids->end(), id) != ids->end()) return &order;
    }
  }
  return nullptr;
}

// --- results

void Stock::handle(const events::ChunkMade& event, Actions& out) {
  if (!step_is(event.id, Step::making)) return;
  graveyard_.made(book_.find(event.id)->bytes, event.now);
  // A slab dies with the helper in any case: the keeper has no part in it.
  if (book_.find(event.id)->slab) return is_made(event.id);
  // The keeper's fd first: a chunk that is leased must survive us (F11).
  steps_[event.id] = Step::putting;
  out.emplace_back(actions::KeeperPut{{event.id}});
}

void Stock::handle(const events::MakeFailed& event, Actions& out) {
  // F33: made, but not to be kept, is not made.
  if (!step_is(event.id, Step::making) && !step_is(event.id, Step::putting)) return;
  steps_.erase(event.id);
  Order* order = order_of(event.id);
  const bool slab = book_.find(event.id)->slab;
  book_.make_failed(event.id);
  const std::string kind = slab ? "slab" : "chunk";
  const std::string what =
      event.device_full ? "the device has no room for a " + kind + " that the pool has room for"
                        : (slab ? "the helper" : "the driver") + std::string(" could not make a ") + kind;
  const std::string why = what + (event.why.empty() ? "" : " (" + event.why + ")");
  if (order != nullptr) {
    std::erase(order->making, event.id);
    // F32: nothing is kept of it.
    fail(*order, why, slab && !event.device_full ? Refusal::Rule::helper_failed : Refusal::Rule::device_full);
    return;
  }
  if (slab) return;  // its order was cancelled meanwhile
  if (!filled_ && !fatal_ && (!event.device_full || event.now >= fill_until_)) {
    fatal_ = true;
    out.emplace_back(actions::Fatal{
        {Errc::out_of_memory, "cannot make the pool of " + to_text(setup_.pool) + ": " + why +
                                  "; choose a smaller pool, or end what holds memory on the device"}});
    return;
  }
  if (retry_at_.value == 0) {
    const bool first = backoff_ns_ == 0;
    backoff_ns_ = std::clamp(2 * backoff_ns_, kFirstBackoffNs, filled_ ? kLongestBackoffNs : kFirstBackoffNs);
    retry_at_ = {event.now.value + backoff_ns_};
    // Once per shortage: it is tried again every few hundred milliseconds.
    if (first) out.emplace_back(actions::Log{actions::Log::Level::warning, "make_failed", {{"why", why}}});
  }
}

void Stock::handle(const events::KeeperAcked& event, Actions& out) {
  for (const ChunkId id : event.ids) {
    if (event.what == events::KeeperAcked::What::del) {
      if (!step_is(id, Step::deleting)) continue;
      steps_[id] = Step::closing;
      out.emplace_back(actions::UnmakeChunk{id, book_.find(id)->bytes});
      continue;
    }
    if (!step_is(id, Step::putting)) continue;
    is_made(id);
  }
}

void Stock::is_made(ChunkId id) {
  steps_.erase(id);
  backoff_ns_ = 0;
  book_.made(id);
  if (Order* order = order_of(id); order != nullptr) {
    std::erase(order->making, id);
    give(*order, id);
  } else if (!keeps(*book_.find(id))) {
    discard(id);  // its order was cancelled meanwhile
  }
}

void Stock::handle(const events::ChunkUnmade& event, Actions& /*out*/) {
  if (!step_is(event.id, Step::closing)) return;
  steps_.erase(event.id);
  const BookedChunk& chunk = *book_.find(event.id);
  if (chunk.state == ChunkState::zombie && chunk.slab) {
    graveyard_.add_slab(event.id, chunk.lessee, chunk.bytes, event.now);
  } else if (chunk.state == ChunkState::zombie) {
    graveyard_.add(event.id, chunk.lessee, chunk.bytes, event.now);
  } else {
    graveyard_.unmade(event.now);
    book_.unmade(event.id);
  }
}

void Stock::handle(const events::UnmakeFailed& event, Actions& out) {
  if (!step_is(event.id, Step::closing)) return;
  steps_.erase(event.id);
  const BookedChunk& chunk = *book_.find(event.id);
  // F34: charged as it was until the device shows that the bytes are back.
  if (chunk.state == ChunkState::unmaking) book_.unmake_failed(event.id);
  if (chunk.slab) {
    unfreed_.push_back({event.id, 0, {event.now.value + kFreeAgainNs}});
  } else {
    graveyard_.add(event.id, chunk.lessee, chunk.bytes, event.now);
  }
  out.emplace_back(
      actions::Log{actions::Log::Level::error,
                   "unmake_failed",
                   {{chunk.slab ? "slab" : "chunk", std::to_string(event.id.value)}, {"why", event.why}}});
}

void Stock::tick(SteadyNs now) {
  if (retry_at_.value != 0 && now >= retry_at_) retry_at_ = {};
  std::erase_if(scrub_again_, [&](const At& again) {
    if (again.at > now) return false;
    ask_again(again.id);
    return true;
  });
  std::erase_if(lost_, [&](const At& lost) { return lost.at.value + kLostPatienceNs <= now.value; });
  if (std::exchange(disturbed_, false)) quiet_since_ = now;
  ahead_due_ = now.value - quiet_since_.value >= kQuietNs;
}

// --- serving orders

void Stock::fail(Order& order, std::string why, Refusal::Rule rule) {
  if (!order.failure.empty()) return;
  order.failure = std::move(why);
  order.failed_by = rule;
}

void Stock::give(Order& order, ChunkId id) {
  if (hygiene_.needs_scrub(book_.find(id)->past, order.owner)) {
    book_.begin_scrub_for(id, order.session, order.request);
    // Who has had a mishap risks nobody else's chunk any more.
    begin_scrub(id, Overwriting::For::grant, order.mishaps > 0);
    order.scrubbing.push_back(id);
    scrub_used_ = true;
    return;
  }
  book_.offer(id, order.session, order.request);
  order.ready.push_back(id);
}

// A chunk that could not be overwritten comes last; and who has had a mishap rather has one unmade and made
// anew, for which the driver may find other memory.
std::optional<ChunkId> Stock::pick_for(const Order& order) const {
  return book_.pick_free([&](const Past& past) -> std::optional<int> {
    const std::optional<int> rank = hygiene_.rank_to_grant(past, order.owner);
    if (!rank || !past.stubborn || !hygiene_.needs_scrub(past, order.owner)) return rank;
    return order.mishaps == 0 ? std::optional(*rank + kLast) : std::nullopt;
  });
}

std::optional<ChunkId> Stock::pick_to_unmake() const {
  return book_.pick_free([&](const Past& past) {
    return hygiene_.rank_to_unmake(past) +
           (past.stubborn && hygiene_.needs_scrub_to_loosen(past) ? kLast : 0);
  });
}

void Stock::serve_from_free() {
  for (Order& order : orders_) {
    const bool takes_chunks = !order.slab && order.piece == setup_.chunk;
    while (takes_chunks && order.failure.empty() && order.missing > 0) {
      const std::optional<ChunkId> id = pick_for(order);
      if (!id) break;
      --order.missing;
      give(order, *id);
    }
  }
}

void Stock::serve_from_loose(Actions& out) {
  for (Order& order : orders_) {
    if (!order.failure.empty()) continue;
    while (order.missing > 0 && book_.loose() >= order.piece)
      begin_make(order.piece, &order, out);
    if (order.missing > 0) return;  // nobody overtakes: what becomes loose is for this one
  }
}

Bytes Stock::refill_coming() const {
  Bytes sum = book_.in_state(ChunkState::making);
  for (const Order& order : orders_)
    sum -= order.piece * order.making.size();
  return sum;
}

void Stock::unmake_for_orders(Actions& /*out*/) {
  Bytes needed{};
  for (const Order& order : orders_) {
    if (order.failure.empty()) needed += order.piece * order.missing;
  }
  if (needed.value == 0) return;
  Bytes coming =
      book_.loose() + book_.in_state(ChunkState::unmaking) + scrub_coming() + lost_coming() + refill_coming();
  while (coming < needed) {
    const std::optional<ChunkId> id = pick_to_unmake();
    if (!id) break;
    coming += book_.find(*id)->bytes;
    discard(*id);
  }
  // F34, F37: the driver kept what was counted on. The latest orders go without.
  for (auto order = orders_.rbegin(); order != orders_.rend() && coming < needed; ++order) {
    if (order->missing == 0 || !order->failure.empty()) continue;
    needed -= order->piece * order->missing;
    if (order->mishaps > 0) {
      fail(*order, order->mishap, Refusal::Rule::scrub_failed);
    } else {
      fail(*order, "memory that was on its way back did not come back from the driver");
    }
  }
}

void Stock::refill(Actions& out) {
  if (setup_.reserve == Reserve::leased || fatal_ || retry_at_.value != 0) return;
  const bool wanted =
      std::any_of(orders_.begin(), orders_.end(), [](const Order& order) { return order.missing > 0; });
  if (wanted) return;  // loose bytes are waited for
  while (book_.loose() >= setup_.chunk)
    begin_make(setup_.chunk, nullptr, out);
  if (!filled_ && book_.loose().value == 0 && book_.in_state(ChunkState::making).value == 0) filled_ = true;
}

void Stock::finish_orders() {
  for (auto order = orders_.begin(); order != orders_.end();) {
    const bool failed = !order->failure.empty();
    if (!failed && (order->missing > 0 || !order->making.empty() || !order->scrubbing.empty())) {
      ++order;
      continue;
    }
    if (failed) let_go(*order);
    (failed ? failed_ : ready_).push_back(std::move(*order));
    order = orders_.erase(order);
  }
}

void Stock::pump(Actions& out) {
  finish_orders();  // failures first: what they had may serve others
  serve_from_free();
  serve_from_loose(out);
  unmake_for_orders(out);
  finish_orders();
  refill(out);
  scrub_ahead();
  ask_helper(out);
  for (const ChunkId id : std::exchange(to_free_, {}))
    out.emplace_back(actions::FreeSlab{id});
  if (!to_delete_.empty()) out.emplace_back(actions::KeeperDel{std::exchange(to_delete_, {})});
}

std::vector<Stock::Order> Stock::take_ready() {
  return std::exchange(ready_, {});
}
std::vector<Stock::Order> Stock::take_failed() {
  return std::exchange(failed_, {});
}

Bytes Stock::promised() const {
  Bytes sum{};
  for (const Order& order : orders_)
    sum += order.promised();
  return sum;
}

Bytes Stock::promised(JobIndex job) const {
  Bytes sum{};
  for (const Order& order : orders_) {
    if (order.owner.job == job) sum += order.promised();
  }
  return sum;
}

Bytes Stock::scrubbing_for(JobIndex job) const {
  Bytes sum{};
  for (const Order& order : orders_) {
    if (order.owner.job == job) sum += order.piece * order.scrubbing.size();
  }
  return sum;
}

}  // namespace apportion
