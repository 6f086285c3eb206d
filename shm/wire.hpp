// The protocol in one include: every message, and the only way in and out of bytes.
//
// Promises: decode() believes nothing: magic, version, type, length, counts, part numbers, enums and texts
// are checked before a message is returned, and a sender can only send what its side may. A major of another
// number is refused by name (F19); a longer message of a newer minor is accepted and its tail ignored.
// Never: blocks, allocates per field, touches an fd. Thread-safe: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <variant>

#include "shm/result.hpp"
#include "shm/wire_broker.hpp"
#include "shm/wire_client.hpp"
#include "shm/wire_header.hpp"
#include "shm/wire_helper.hpp"
#include "shm/wire_keeper.hpp"

namespace apportion::wire {

using Message =
    std::variant<Hello, Leases, Request, GrantAck, GrantNack, Release, Detach, StatusRequest,  //
                 Reclaimed,                                                                    // client
                 Welcome, Refused, Grant, SlabGrant, SlabsLost, Refusal, Released, Detached,   // broker
                 Reclaim, StatusBroker, StatusJobs, StatusSessions, StatusHolders,             //
                 Put, Del, Ack, Ping, Pong, Take, Ready,                                       // keeper
                 Scrub, Scrubbed, MakeSlab, SlabMade, ScrubSlabs, FreeSlab, SlabFreed>;        // helper

// Whose bytes are decoded: a client's PUT is refused like any unknown type.
enum class Sender { client, broker, keeper_pair, helper_pair };

// Errc::protocol with one line that can be sent back in REFUSED; Errc::invalid for well-formed nonsense
// (min_bytes above want_bytes).
[[nodiscard]] Result<Message> decode(std::span<const std::byte> datagram, Sender sender);

// The header alone, where the datagram is long enough and the magic is ours: for answering a message that
// decode() refused. Nothing else of it is checked.
[[nodiscard]] Result<Header> decode_header(std::span<const std::byte> datagram);

[[nodiscard]] const Header& header_of(const Message& message);

// How many fds belong to this message. F25, F26: any other number is an error of the sender or of our limits.
[[nodiscard]] std::size_t fds_of(const Message& message);

// "HELLO", "GRANT" ... for logs; "type 99" for strangers.
[[nodiscard]] std::string to_text(Type type);

// The versions of the shared pages this build writes and reads; goes into HELLO and WELCOME.
[[nodiscard]] LayoutVersions current_layouts();
// F19: Errc::protocol where a page of the other side has another major, naming page and both versions.
[[nodiscard]] Status check_layouts(const LayoutVersions& theirs);

// A message of type M with its header filled in.
template <typename M>
[[nodiscard]] M make(std::uint64_t request_id, std::uint64_t epoch) {
  static_assert(std::is_trivially_copyable_v<M> && sizeof(M) <= kMaxDatagramBytes);
  M message{};
  message.header.type = static_cast<std::uint16_t>(M::kType);
  message.header.size = sizeof(M);
  message.header.request_id = request_id;
  message.header.epoch = epoch;
  return message;
}

// The bytes to send. They live as long as the message.
template <typename M>
[[nodiscard]] std::span<const std::byte> bytes_of(const M& message) {
  static_assert(std::is_trivially_copyable_v<M> && std::has_unique_object_representations_v<M>);
  return std::as_bytes(std::span<const M, 1>(&message, 1));
}
[[nodiscard]] std::span<const std::byte> bytes_of(const Message& message);

// Cuts a list into messages of at most `capacity` records and hands each to `emit(M&, first, count)`, which
// fills the records; `emit` is called once with count 0 for an empty list.
template <typename M, typename Emit>
void for_each_part(std::size_t total, std::size_t capacity, std::uint64_t request_id, std::uint64_t epoch,
                   Emit&& emit) {
  const std::size_t parts = total == 0 ? 1 : (total + capacity - 1) / capacity;
  for (std::size_t part = 0; part < parts; ++part) {
    M message = make<M>(request_id, epoch);
    const std::size_t first = part * capacity;
    const std::size_t count = total - first < capacity ? total - first : capacity;
    message.part.part = static_cast<std::uint32_t>(part);
    message.part.parts = static_cast<std::uint32_t>(parts);
    message.part.count = static_cast<std::uint32_t>(count);
    emit(message, first, count);
  }
}

}  // namespace apportion::wire
