// Jobs with transport = "ipc": whose processes can open a slab at all, and what follows when slabs are lost.
#include <map>

#include "broker/core_state.hpp"

namespace apportion {

// The driver opens a cudaIpc handle for processes of its maker's user and PID namespace only (contract rule
// 33): said at HELLO, before anybody waits for memory that it cannot have.
Status Core::State::may_open_slabs(const JobRule& rule, const events::SessionWanted& event) const {
  const std::string job = "job \"" + rule.name + "\" has transport = \"ipc\", ";
  const std::string remedy = "; set transport = \"vmm\" for this job, or ";
  if (event.peer.uid != setup.own_uid)
    return Error{Errc::denied, job + "which works within one user only: this program runs as uid " +
                                   std::to_string(event.peer.uid) + ", the broker as uid " +
                                   std::to_string(setup.own_uid) + remedy + "run both as one user"};
  if (event.peer.pid_namespace == PidNamespace::other)
    return Error{Errc::denied, job + "which works within one PID namespace only, and this program (uid " +
                                   std::to_string(event.peer.uid) +
                                   ", as the broker) runs in another one than the broker" + remedy +
                                   "share the namespace (docker run --pid=host)"};
  if (!event.knows_slabs)
    return Error{Errc::protocol, job + "which this program's library does not know yet (protocol 1.0)" +
                                     remedy +
                                     "install the same version of Apportion for broker and programs"};
  return Done{};
}

void Core::State::tell_lost(SessionId session, std::vector<ChunkId> ids, const std::string& how,
                            Actions& out) const {
  const std::string what = std::to_string(ids.size()) + (ids.size() == 1 ? " slab" : " slabs");
  out.emplace_back(actions::SlabsLost{session, std::move(ids),
                                      what + " of job \"" + setup.jobs[book.find(session)->job.value].name +
                                          "\" lost with all contents: " + how +
                                          "; free what is in them and allocate anew"});
}

// F52. Their bytes stay charged until the holders have closed them and the device shows the room.
void Core::State::on(const events::SlabsLost& event, Actions& out) {
  std::map<SessionId, std::vector<ChunkId>> held;
  Bytes bytes{};
  for (const ChunkId id : event.ids) {
    const BookedChunk* slab = book.find(id);
    if (slab == nullptr || !slab->slab) continue;
    bytes += slab->bytes;
    for (const ChunkState state : {ChunkState::offered, ChunkState::held, ChunkState::orphan})
      if (slab->lessee && lent(id, slab->lessee, state)) held[slab->lessee].push_back(id);
  }
  stock.handle(event, out);
  out.emplace_back(log_line(actions::Log::Level::warning, "lost",
                            {{"what", "slabs"},
                             {"slabs", std::to_string(event.ids.size())},
                             {"bytes", std::to_string(bytes.value)},
                             {"sessions", std::to_string(held.size())},
                             {"why", "the broker's helper died (" + event.why + ")"}}));
  for (auto& [session, ids] : held)
    tell_lost(session, std::move(ids), "the broker's helper died (" + event.why + ")", out);
}

}  // namespace apportion
