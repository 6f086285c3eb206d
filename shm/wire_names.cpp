// The messages' names, for logs.
#include "shm/wire.hpp"

namespace apportion::wire {

std::string to_text(Type type) {
  switch (type) {
    case Type::hello:
      return "HELLO";
    case Type::leases:
      return "LEASES";
    case Type::request:
      return "REQUEST";
    case Type::grant_ack:
      return "GRANT_ACK";
    case Type::grant_nack:
      return "GRANT_NACK";
    case Type::release:
      return "RELEASE";
    case Type::detach:
      return "DETACH";
    case Type::status_request:
      return "STATUS_REQUEST";
    case Type::reclaimed:
      return "RECLAIMED";
    case Type::welcome:
      return "WELCOME";
    case Type::refused:
      return "REFUSED";
    case Type::grant:
      return "GRANT";
    case Type::refusal:
      return "REFUSAL";
    case Type::released:
      return "RELEASED";
    case Type::detached:
      return "DETACHED";
    case Type::reclaim:
      return "RECLAIM";
    case Type::status_broker:
      return "STATUS_BROKER";
    case Type::status_jobs:
      return "STATUS_JOBS";
    case Type::status_sessions:
      return "STATUS_SESSIONS";
    case Type::status_holders:
      return "STATUS_HOLDERS";
    case Type::slab_grant:
      return "SLAB_GRANT";
    case Type::slabs_lost:
      return "SLABS_LOST";
    case Type::put:
      return "PUT";
    case Type::del:
      return "DEL";
    case Type::ack:
      return "ACK";
    case Type::ping:
      return "PING";
    case Type::pong:
      return "PONG";
    case Type::take:
      return "TAKE";
    case Type::ready:
      return "READY";
    case Type::scrub:
      return "SCRUB";
    case Type::scrubbed:
      return "SCRUBBED";
    case Type::make_slab:
      return "MAKE_SLAB";
    case Type::slab_made:
      return "SLAB_MADE";
    case Type::scrub_slabs:
      return "SCRUB_SLABS";
    case Type::free_slab:
      return "FREE_SLAB";
    case Type::slab_freed:
      return "SLAB_FREED";
  }
  return "type " + std::to_string(static_cast<std::uint16_t>(type));
}

}  // namespace apportion::wire
