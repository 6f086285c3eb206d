#include "cli/status_figures.hpp"

#include <algorithm>

namespace apportion {
namespace {

// F23: parts of a row come from different pages; a sum that passes the whole must not wrap.
std::uint64_t left(std::uint64_t whole, std::uint64_t part) {
  return whole - std::min(whole, part);
}

}  // namespace

std::uint64_t used_of(const SessionRecord& session) {
  return left(session.charged, session.idle + session.unspent + session.in_transit);
}

std::uint64_t used_of(const JobRecord& job) {
  return left(job.charged, job.idle + job.unspent + job.in_transit);
}

std::uint64_t told_free_of(const JobRecord& job) {
  return left(job.told_total, job.charged);
}

std::uint64_t overhead_of(const StatusAnswer& answer, const wire::SessionRow& session) {
  for (const wire::HolderRow& holder : answer.holders)
    if (holder.kind == static_cast<std::uint32_t>(wire::HolderKind::context) &&
        holder.session_id == session.session.id)
      return holder.bytes;
  return 0;
}

std::uint64_t contexts_of(const StatusAnswer& answer) {
  std::uint64_t bytes = 0;
  for (const wire::HolderRow& holder : answer.holders)
    if (holder.kind == static_cast<std::uint32_t>(wire::HolderKind::context) ||
        holder.kind == static_cast<std::uint32_t>(wire::HolderKind::helper))
      bytes += holder.bytes;
  return bytes;
}

std::uint64_t reserved_of(const StatusAnswer& answer) {
  const TotalsRecord& totals = answer.broker.totals;
  return left(totals.pool, totals.loose);
}

const char* state_word(std::uint32_t session_state) {
  switch (static_cast<SessionState>(session_state)) {
    case SessionState::attached:
      return "attached";
    case SessionState::orphan:
      return "orphan";
    case SessionState::zombie:
      return "zombie";
    case SessionState::leaving:
      return "leaving";
  }
  return "unknown";
}

const char* holder_word(std::uint32_t holder_kind) {
  switch (static_cast<wire::HolderKind>(holder_kind)) {
    case wire::HolderKind::foreign:
      return "foreign";
    case wire::HolderKind::foreign_rest:
      return "foreign_rest";
    case wire::HolderKind::zombie:
      return "zombie";
    case wire::HolderKind::context:
      return "context";
    case wire::HolderKind::helper:
      return "helper";
  }
  return "unknown";
}

}  // namespace apportion
