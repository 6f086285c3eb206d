#include <algorithm>

#include "broker/core_state.hpp"

namespace apportion {

namespace {

constexpr std::size_t kRefusalsKept = 8;
constexpr Bytes kSlabUnit = 2_MiB;  // contract rule 32: what is smaller shares a block with strangers

std::uint64_t pieces(Bytes bytes, Bytes piece) {
  return (bytes.value - 1) / piece.value + 1;
}

}  // namespace

bool Core::State::lent(ChunkId id, SessionId session, ChunkState state) const {
  const BookedChunk* chunk = book.find(id);
  // OFFERED counts from the moment its GRANT leaves; nobody can acknowledge what was not sent.
  return chunk != nullptr && chunk->lessee == session && chunk->state == state &&
         (state != ChunkState::offered || chunk->sent);
}

std::vector<ChunkId> Core::State::offered(SessionId session_id, RequestId request,
                                          const std::vector<ChunkId>& ids) const {
  std::vector<ChunkId> found;
  if (const BookedSession* session = book.find(session_id); session != nullptr && ids.empty()) {
    for (const std::uint32_t slot : session->chunks) {
      const ChunkId id = book.id_of(slot);
      if (lent(id, session_id, ChunkState::offered) && book.find(id)->request == request) found.push_back(id);
    }
    return found;
  }
  for (const ChunkId id : ids) {
    if (lent(id, session_id, ChunkState::offered) &&
        std::find(found.begin(), found.end(), id) == found.end()) {
      found.push_back(id);
    }
  }
  return found;
}

void Core::State::on(const events::Request& event, Actions& out) {
  const BookedSession* session = live(event.session);
  if (session == nullptr || session->state != SessionPhase::attached) return;
  const Bytes asked = event.min;
  if (event.min.value == 0 || event.want < event.min || (event.exact && event.want != event.min)) {
    return refuse(*session, event.request,
                  refusal(*session, asked, Refusal::Rule::malformed, {}, "ask for min <= want, min above 0"),
                  out);
  }
  if (!closed.empty())
    return refuse(*session, event.request, refusal(*session, asked, Refusal::Rule::closed, {}, closed), out);
  // Sizes above the pool are cut first, so that rounding cannot wrap.
  const Bytes above = setup.pool + setup.chunk;
  const Bytes min = std::min(event.min, above);
  const Bytes want = std::min(event.want, above);
  const bool slabs = takes_slabs(session->job);
  const Bytes unit = slabs ? std::max(setup.granularity, kSlabUnit) : setup.granularity;
  const Bytes piece = event.exact ? round_up(min, unit) : setup.chunk;
  const std::uint64_t least = event.exact ? 1 : pieces(min, piece);
  const std::uint64_t most = event.exact ? 1 : pieces(want, piece);

  const Wish wish{event.session, event.request, asked, piece, least, most};
  const Bytes ahead = waiting()[session->job.value];
  const Admission now = admission(wish, ahead, false);
  if (const std::uint64_t granted = pieces_of(wish, now); granted != 0) return order(wish, granted);
  Refusal why = refusal(*session, asked, now.rule, now.headroom, "");
  if (event.ahead) {
    out.emplace_back(actions::SendRefusal{event.session, event.request, std::move(why)});
    return;
  }
  // One for each session: the library asks for one thing at a time, and what waits costs the broker at every
  // event (F28).
  const bool worth = (now.rule == Refusal::Rule::limit && worth_waiting({wish})) ||
                     (setup.jobs[session->job.value].wait_ns != 0 && may_come(wish, ahead));
  if (!waits(event.session) && worth) {
    waiters.push_back({wish});  // serve_waiters asks for what it needs
    return;
  }
  refuse(*session, event.request, std::move(why), out);
}

Admission Core::State::admission(const Wish& wish, Bytes ahead, bool coming_too) const {
  const BookedSession& session = *book.find(wish.session);
  std::vector<JobView> all = views();
  all[session.job.value].waiting = ahead;
  PoolView pool = pool_view();
  if (coming_too) pool.free_now = pool.free_guaranteed;
  return admit(all, session.job.value, pool, session.reclaimable, false, wish.bytes());
}

// Whether it fits once what is on its way to F, being unmade or made anew, has arrived.
bool Core::State::may_come(const Wish& wish, Bytes ahead) const {
  return pieces_of(wish, admission(wish, ahead, true)) != 0;
}

std::uint64_t Core::State::pieces_of(const Wish& wish, const Admission& admission) {
  return pieces_granted(admission.headroom, wish.piece, wish.least, wish.most);
}

void Core::State::order(const Wish& wish, std::uint64_t pieces) {
  const BookedSession& session = *book.find(wish.session);
  Stock::Order order{wish.session, wish.request, Owner{session.job, session.uid},
                     wish.asked,   wish.piece,   pieces};
  order.slab = takes_slabs(session.job);
  stock.order(std::move(order));
}

void Core::State::send_ready(Actions& out) {
  for (const Stock::Order& order : stock.take_ready()) {
    Bytes bytes{};
    for (const ChunkId id : order.ready) {
      bytes += book.find(id)->bytes;
      book.mark_sent(id);
    }
    ++jobs[order.owner.job.value].counters.grants;
    out.emplace_back(actions::SendGrant{order.session, order.request, setup.epoch, bytes, order.ready,
                                        order.owner.job, order.slab});
  }
}

void Core::State::send_failed(Actions& out) {
  for (const Stock::Order& order : stock.take_failed()) {
    const BookedSession& session = *book.find(order.session);
    refuse(session, order.request, refusal(session, order.asked, order.failed_by, {}, order.failure), out);
  }
}

void Core::State::on(const events::Acked& event, Actions& /*out*/) {
  const BookedSession* session = live(event.session);
  if (session == nullptr || session->state != SessionPhase::attached) return;
  for (const ChunkId id : offered(event.session, event.request, event.ids))
    book.hold(id);
}

void Core::State::on(const events::Nacked& event, Actions& /*out*/) {
  for (const ChunkId id : offered(event.session, event.request, event.ids))
    take_back(id);  // F26
}

void Core::State::on(const events::GrantUnsent& event, Actions& out) {
  const std::vector<ChunkId> unsent = offered(event.session, event.request, event.ids);
  Bytes bytes{};
  for (const ChunkId id : unsent) {
    bytes += book.find(id)->bytes;
    stock.roll_back(id);  // F33: the client never saw them
  }
  const BookedSession* session = live(event.session);
  if (unsent.empty() || session == nullptr || session->state != SessionPhase::attached) return;
  refuse(*session, event.request, refusal(*session, bytes, Refusal::Rule::send_failed, {}, event.why), out);
}

// A live client gave it back.
void Core::State::take_back(ChunkId id) {
  book.begin_return(id);
  stock.put_back(id);
}

void Core::State::on(const events::Released& event, Actions& /*out*/) {
  const BookedSession* session = live(event.session);
  if (session == nullptr || session->state != SessionPhase::attached) return;
  Answer answer{event.session, event.request, {}, 0, {}, {}};
  for (const ChunkId id : event.ids) {
    // F03: a chunk named twice is the session's no more the second time.
    if (!lent(id, event.session, ChunkState::held) && !lent(id, event.session, ChunkState::offered)) {
      answer.unknown.push_back(id);
      continue;
    }
    answer.bytes += book.find(id)->bytes;
    ++answer.chunks;
    take_back(id);
    // Kept as a chunk it is anybody's from here on; else it is this session's until it is loose.
    if (book.find(id)->state != ChunkState::free) answer.awaited.push_back(id);
  }
  for (Reclaiming& asked : reclaiming) {
    if (asked.session == event.session) asked.bytes = saturating_sub(asked.bytes, answer.bytes);
  }
  std::erase(overdue, event.session);
  answers.push_back(std::move(answer));
}

// A RELEASED says that the bytes count for the job no more: where they are unmade, it follows that.
void Core::State::send_answers(Actions& out) {
  std::erase_if(answers, [&](Answer& answer) {
    std::erase_if(answer.awaited, [&](ChunkId id) {
      const BookedChunk* chunk = book.find(id);
      const bool on_its_way = chunk != nullptr && (chunk->state == ChunkState::unmaking ||
                                                   (chunk->state == ChunkState::scrub && !stock.stuck(id)));
      return !on_its_way;
    });
    if (!answer.awaited.empty()) return false;
    out.emplace_back(actions::SendReleased{answer.session, answer.request, answer.bytes, answer.chunks,
                                           std::move(answer.unknown)});
    return true;
  });
}

void Core::State::refuse(const BookedSession& session, RequestId request, Refusal refusal, Actions& out) {
  Job& job = jobs[session.job.value];
  ++job.counters.refusals;
  job.refusals.push_front(refusal);
  if (job.refusals.size() > kRefusalsKept) job.refusals.pop_back();
  out.emplace_back(log_line(actions::Log::Level::info, "refused",
                            {{"job", refusal.job},
                             {"pid", std::to_string(session.pid)},
                             {"rule", to_text(refusal.rule)},
                             {"asked", std::to_string(refusal.asked.value)},
                             {"reason", refusal.reason}}));
  out.emplace_back(actions::SendRefusal{session.id, request, std::move(refusal)});
}

}  // namespace apportion
