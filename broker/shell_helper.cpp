// The shell's part that speaks to the helper: chunks overwritten, slabs made, published, overwritten, freed
// and lost.
#include <algorithm>
#include <chrono>

#include "broker/shell.hpp"
#include "shm/fault_point.hpp"

namespace apportion {
namespace {

SteadyNs now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(since).count()};
}

}  // namespace

HelperLink::Answers Shell::helper_answers() {
  return {.scrubbed =
              [this](const std::vector<ChunkId>& ids, const std::optional<HelperLink::Failure>& failure) {
                if (!failure) return event(events::Scrubbed{ids});
                event(events::ScrubFailed{ids, failure->why, now(), failure->how});
              },
          .slab_made =
              [this](ChunkId id, const Result<IpcHandle>& made) {
                if (!made.ok())
                  return event(events::MakeFailed{id, made.error().code == Errc::out_of_memory,
                                                  made.error().message, now()});
                slab_handles_[id] = *made;
                event(events::ChunkMade{id, now()});
              },
          .slab_freed =
              [this](ChunkId id, const Status& freed) {
                if (freed.ok()) return event(events::ChunkUnmade{id, now()});
                event(events::UnmakeFailed{id, freed.error().message, now()});
              },
          .slabs_lost =
              [this](const std::vector<ChunkId>& ids, const std::string& why, pid_t pid) {
                for (const ChunkId id : ids)
                  forget_slab(id);
                dead_helpers_.insert(pid);
                event(events::SlabsLost{ids, why, now()});
              }};
}

// Nobody finds it any more. Before it is overwritten or freed: who opens it then would see the next owner's
// bytes, or fail.
void Shell::forget_slab(ChunkId id) {
  publisher_->clear_slab(id);
  slab_handles_.erase(id);
}

void Shell::on(const actions::ScrubChunks& action) {
  for (const HelperLink::Piece& piece : action.chunks)
    if (piece.slab) publisher_->clear_slab(piece.id);
  helper_.scrub(action.chunks);
}

void Shell::on(const actions::MakeSlab& action) {
  helper_.make_slab(action.id, action.bytes);
}

void Shell::on(const actions::FreeSlab& action) {
  forget_slab(action.id);
  helper_.free_slab(action.id);
}

// F12: the handles are in the page before the message that names their places.
void Shell::send_slabs(const actions::SendGrant& grant) {
  ClientConnection* connection = server_.connection_of(grant.session);
  if (connection == nullptr)
    return event(events::GrantUnsent{grant.session, grant.request, grant.ids, "the client hung up"});
  const Bytes each{grant.bytes.value / grant.ids.size()};  // the slabs of one grant are of one size
  std::vector<ClientConnection::GrantPart> parts;
  wire::for_each_part<wire::SlabGrant>(
      grant.ids.size(), wire::kMaxGrantChunks, grant.request.value, grant.epoch,
      [&](wire::SlabGrant& message, std::size_t first, std::size_t count) {
        ClientConnection::GrantPart part;
        for (std::size_t i = 0; i < count; ++i) {
          const ChunkId id = grant.ids[first + i];
          // Its helper has died since, and the core hears of that next: an empty place says so to the client.
          const auto handle = slab_handles_.find(id);
          const std::uint32_t place =
              handle == slab_handles_.end()
                  ? 0
                  : publisher_->put_slab(grant.job, grant.session, id, each, handle->second);
          message.entries[i] = {.lease_id = id.value, .bytes = each.value, .place = place};
          part.ids.push_back(id);
        }
        message.part.flags = message.part.part + 1 == message.part.parts ? wire::kLast : 0;
        const auto bytes = wire::bytes_of(message);
        part.bytes.assign(bytes.begin(), bytes.end());
        parts.push_back(std::move(part));
      });
  APPORTION_FAULT_POINT("slabs.before_send");
  connection->send_grant(grant.session, grant.request, std::move(parts));
}

void Shell::on(const actions::SlabsLost& action) {
  ClientConnection* connection = server_.connection_of(action.session);
  if (connection == nullptr) return;  // it hears it when it comes back
  wire::for_each_part<wire::SlabsLost>(action.ids.size(), wire::SlabsLost::kMost, 0, parts_.setup.epoch,
                                       [&](wire::SlabsLost& message, std::size_t first, std::size_t count) {
                                         message.text.set(action.why);
                                         for (std::size_t i = 0; i < count; ++i)
                                           message.ids[i] = action.ids[first + i].value;
                                         message.part.flags =
                                             message.part.part + 1 == message.part.parts ? wire::kLast : 0;
                                         connection->send(wire::bytes_of(message));
                                       });
}

}  // namespace apportion
