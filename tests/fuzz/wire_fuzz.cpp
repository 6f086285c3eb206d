// Feeds bytes of a stranger to wire::decode (F24). The first byte chooses the side, the rest is the datagram.
//
// What must hold for anything accepted: it is the datagram's own bytes, it decodes again to the same, its fds
// and counts are within the protocol's limits. Memory errors are the sanitizers' to find.
#include <cstring>
#include <iterator>

#include "shm/wire.hpp"

using namespace apportion;

namespace {

void must(bool holds) {
  if (!holds) __builtin_trap();
}

template <typename M>
void check_list(const M& message) {
  if constexpr (requires { message.part; }) {
    must(message.part.part < message.part.parts);
    if constexpr (requires { message.entries; }) must(message.part.count <= message.entries.size());
    if constexpr (requires { message.ids; }) must(message.part.count <= message.ids.size());
    if constexpr (requires { message.rows; }) must(message.part.count <= message.rows.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr wire::Sender kSenders[] = {wire::Sender::client, wire::Sender::broker, wire::Sender::keeper_pair,
                                       wire::Sender::helper_pair};
  const wire::Sender sender = kSenders[data[0] % std::size(kSenders)];
  const auto datagram = std::as_bytes(std::span(data + 1, size - 1));
  static_cast<void>(wire::decode_header(datagram));

  const Result<wire::Message> message = wire::decode(datagram, sender);
  if (!message) {
    must(!message.error().message.empty() && message.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const auto bytes = wire::bytes_of(*message);
  must(bytes.size() <= datagram.size());
  must(std::memcmp(bytes.data(), datagram.data(), bytes.size()) == 0);
  must(wire::fds_of(*message) <= wire::kMaxFds);
  must(wire::header_of(*message).size == datagram.size());
  std::visit([](const auto& m) { check_list(m); }, *message);
  if (bytes.size() == datagram.size()) {
    const Result<wire::Message> again = wire::decode(bytes, sender);
    must(again.ok() && again->index() == message->index());
  }
  return 0;
}
