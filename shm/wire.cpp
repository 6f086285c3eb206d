#include "shm/wire.hpp"

#include <array>
#include <utility>

#include "shm/job_layout.hpp"

namespace apportion::wire {

namespace {

constexpr std::uint16_t kFirstBroker = 65;
constexpr std::uint16_t kFirstKeeper = 129;
constexpr std::uint16_t kFirstHelper = 193;

Error malformed(const std::string& why) {
  return {Errc::protocol, "a message is malformed: " + why};
}

Status check_part(const Part& part, std::size_t capacity) {
  if (part.count > capacity) return malformed("it counts more records than it has room for");
  if (part.parts == 0 || part.parts > kMaxParts || part.part >= part.parts) {
    return malformed("part " + std::to_string(part.part) + " of " + std::to_string(part.parts));
  }
  return Done{};
}

template <std::size_t N>
Status check_text(const Text<N>& text, const char* what) {
  if (!text.valid()) return malformed(std::string(what) + " is not terminated, or holds control characters");
  return Done{};
}

Status check_code(std::uint32_t code) {
  if (code > static_cast<std::uint32_t>(Errc::timed_out)) return malformed("an unknown error code");
  return Done{};
}

template <typename Record, std::size_t N>
std::span<const Record> used(const std::array<Record, N>& records, const Part& part) {
  return std::span<const Record>(records).first(part.count);
}

// Empty where everything is in order, so that checks can be chained.
Status all(std::initializer_list<Status> checks) {
  for (const Status& check : checks) {
    if (!check) return check.error();
  }
  return Done{};
}

// ---- client
Status check(const Hello& m) {
  return all({check_text(m.job, "the job name"), check_text(m.label, "the label")});
}
Status check(const Leases& m) {
  return check_part(m.part, m.entries.size());
}
Status check(const Request& m) {
  if (m.want_bytes == 0) return Error{Errc::invalid, "a request for 0 bytes"};
  if (m.min_bytes > m.want_bytes)
    return Error{Errc::invalid, "a request whose minimum is above what it wants"};
  return Done{};
}
Status check(const GrantAck& m) {
  return check_part(m.part, m.ids.size());
}
Status check(const GrantNack& m) {
  return all({check_part(m.part, m.ids.size()), check_code(m.reason)});
}
Status check(const Release& m) {
  return check_part(m.part, m.ids.size());
}
Status check(const Detach&) {
  return Done{};
}
Status check(const StatusRequest&) {
  return Done{};
}
Status check(const Reclaimed& m) {
  return m.code == 0 ? Status(Done{}) : check_code(m.code - 1);
}

// ---- broker
Status check(const Welcome& m) {
  return all({check_text(m.job, "the job name"), check_text(m.device_uuid, "the device's UUID"),
              check_text(m.device_name, "the device's name"), check_text(m.driver_path, "the driver's path"),
              check_text(m.cudasim_dir, "the simulator's folder")});
}
Status check(const Refused& m) {
  return all({check_code(m.code), check_text(m.text, "the text")});
}
Status check(const Grant& m) {
  if (Status part = check_part(m.part, m.entries.size()); !part) return part.error();
  const bool credit = m.kind == static_cast<std::uint32_t>(GrantKind::credit);
  if (!credit && m.kind != static_cast<std::uint32_t>(GrantKind::chunks))
    return malformed("an unknown kind of grant");
  if (credit && m.part.count != 1) return malformed("a credit that is not one entry");
  for (const ChunkEntry& entry : used(m.entries, m.part)) {
    if (entry.bytes == 0) return malformed("a grant of 0 bytes");
  }
  return Done{};
}
Status check(const SlabGrant& m) {
  if (Status part = check_part(m.part, m.entries.size()); !part) return part.error();
  for (const SlabPlace& entry : used(m.entries, m.part)) {
    if (entry.bytes == 0 || entry.lease_id == 0) return malformed("a grant of no slab");
  }
  return Done{};
}
Status check(const SlabsLost& m) {
  return all({check_part(m.part, m.ids.size()), check_text(m.text, "the text")});
}
Status check(const Refusal& m) {
  return all({check_code(m.code), check_text(m.text, "the text")});
}
Status check(const Released&) {
  return Done{};
}
Status check(const Detached&) {
  return Done{};
}
Status check(const Reclaim& m) {
  if (m.bytes == 0) return malformed("a reclaim of 0 bytes");
  return Done{};
}
Status check(const StatusBroker& m) {
  return all({check_part(m.part, 1), check_text(m.row.device_uuid, "the device's UUID"),
              check_text(m.row.device_name, "the device's name"), check_text(m.row.version, "the version"),
              check_text(m.row.socket, "the socket's path"), check_text(m.row.config, "the config's path"),
              check_text(m.row.note, "the note")});
}
Status check(const StatusJobs& m) {
  if (Status part = check_part(m.part, m.rows.size()); !part) return part.error();
  for (const JobRow& row : used(m.rows, m.part)) {
    if (Status name = check_text(row.job.name, "a job's name"); !name) return name.error();
  }
  return Done{};
}
Status check(const StatusSessions& m) {
  if (Status part = check_part(m.part, m.rows.size()); !part) return part.error();
  for (const SessionRow& row : used(m.rows, m.part)) {
    Status texts = all({check_text(row.session.label, "a label"), check_text(row.job_name, "a job's name")});
    if (!texts) return texts.error();
  }
  return Done{};
}
Status check(const StatusHolders& m) {
  if (Status part = check_part(m.part, m.rows.size()); !part) return part.error();
  for (const HolderRow& row : used(m.rows, m.part)) {
    if (Status name = check_text(row.name, "a holder's name"); !name) return name.error();
  }
  return Done{};
}

// ---- keeper
Status check_kept(const Part& part, const std::array<KeptEntry, kMaxFds>& entries) {
  if (Status fits = check_part(part, entries.size()); !fits) return fits.error();
  for (const KeptEntry& entry : used(entries, part)) {
    if (entry.kind < static_cast<std::uint32_t>(KeptKind::chunk) ||
        entry.kind > static_cast<std::uint32_t>(KeptKind::journal)) {
      return malformed("an unknown kind of kept fd");
    }
  }
  return Done{};
}
Status check(const Put& m) {
  return check_kept(m.part, m.entries);
}
Status check(const Del& m) {
  return check_kept(m.part, m.entries);
}
Status check(const Ack& m) {
  return m.code == 0 ? Status(Done{}) : check_code(m.code - 1);
}
Status check(const Ping&) {
  return Done{};
}
Status check(const Pong&) {
  return Done{};
}
Status check(const Take&) {
  return Done{};
}
Status check(const Ready&) {
  return Done{};
}

// ---- helper
Status check(const Scrub& m) {
  if (Status part = check_part(m.part, m.entries.size()); !part) return part.error();
  for (const ChunkEntry& entry : used(m.entries, m.part)) {
    if (entry.bytes == 0) return malformed("a chunk of 0 bytes");
  }
  return Done{};
}
// What the helper answers: 0, or an error code and one line.
template <typename Answer>
Status check_answer(const Answer& m) {
  return all({m.code == 0 ? Status(Done{}) : check_code(m.code - 1), check_text(m.text, "the text")});
}
Status check(const Scrubbed& m) {
  return check_answer(m);
}
Status check(const MakeSlab& m) {
  if (m.id == 0 || m.bytes == 0) return malformed("a slab without an id, or of 0 bytes");
  return Done{};
}
Status check(const SlabMade& m) {
  return check_answer(m);
}
Status check(const ScrubSlabs& m) {
  return check_part(m.part, m.ids.size());
}
Status check(const FreeSlab&) {
  return Done{};
}
Status check(const SlabFreed& m) {
  return check_answer(m);
}

bool may_send(Sender sender, std::uint16_t type) {
  switch (sender) {
    case Sender::client:
      return type < kFirstBroker;
    case Sender::broker:
      return type >= kFirstBroker && type < kFirstKeeper;
    case Sender::keeper_pair:
      return type >= kFirstKeeper && type < kFirstHelper;
    case Sender::helper_pair:
      return type >= kFirstHelper;
  }
  return false;
}

template <typename M>
Result<Message> decode_as(std::span<const std::byte> datagram, const Header& header) {
  // Minor 0 is the first: nothing shorter is known. A newer minor appends, an equal one does not.
  const bool longer_is_fine = header.minor > kMinor;
  if (datagram.size() < sizeof(M) || (datagram.size() > sizeof(M) && !longer_is_fine)) {
    return malformed(to_text(M::kType) + " of " + std::to_string(datagram.size()) + " bytes instead of " +
                     std::to_string(sizeof(M)));
  }
  M message;
  std::memcpy(static_cast<void*>(&message), datagram.data(), sizeof message);
  if (Status checked = check(message); !checked) return checked.error();
  return Message(message);
}

template <std::size_t... I>
Result<Message> dispatch(std::span<const std::byte> datagram, const Header& header,
                         std::index_sequence<I...>) {
  Result<Message> result = malformed("unknown " + to_text(static_cast<Type>(header.type)));
  const auto matches = [&]<typename M>() {
    if (header.type != static_cast<std::uint16_t>(M::kType)) return false;
    result = decode_as<M>(datagram, header);
    return true;
  };
  (matches.template operator()<std::variant_alternative_t<I, Message>>() || ...);
  return result;
}

}  // namespace

Result<Header> decode_header(std::span<const std::byte> datagram) {
  if (datagram.size() < sizeof(Header)) {
    return malformed("its " + std::to_string(datagram.size()) + " bytes are fewer than a header");
  }
  Header header;
  std::memcpy(&header, datagram.data(), sizeof header);
  if (header.magic != kMagic) return malformed("it is not a message of Apportion");
  return header;
}

Result<Message> decode(std::span<const std::byte> datagram, Sender sender) {
  const Result<Header> header = decode_header(datagram);
  if (!header) return header.error();
  if (header->major != kMajor) {  // F19
    return Error{Errc::protocol, "the other side speaks protocol " + std::to_string(header->major) + "." +
                                     std::to_string(header->minor) + ", this side " + std::to_string(kMajor) +
                                     "." + std::to_string(kMinor) +
                                     ": install the same version of Apportion for broker and programs"};
  }
  if (datagram.size() > kMaxDatagramBytes || header->size != datagram.size()) {
    return malformed("it says " + std::to_string(header->size) + " bytes and has " +
                     std::to_string(datagram.size()));
  }
  if (!may_send(sender, header->type)) {
    return malformed(to_text(static_cast<Type>(header->type)) + " is not this side's to send");
  }
  return dispatch(datagram, *header, std::make_index_sequence<std::variant_size_v<Message>>{});
}

const Header& header_of(const Message& message) {
  return std::visit([](const auto& m) -> const Header& { return m.header; }, message);
}

std::size_t fds_of(const Message& message) {
  if (std::holds_alternative<Welcome>(message)) return Welcome::kFds;
  if (const auto* put = std::get_if<Put>(&message)) return put->part.count;
  if (const auto* scrub = std::get_if<Scrub>(&message)) return scrub->part.count;
  if (const auto* grant = std::get_if<Grant>(&message)) {
    return grant->kind == static_cast<std::uint32_t>(GrantKind::chunks) ? grant->part.count : 0;
  }
  return 0;
}

LayoutVersions current_layouts() {
  return {kLedgerMajor, kLedgerMinor, kJobPageMajor, kJobPageMinor, kReportPageMajor, kReportPageMinor, 0};
}

Status check_layouts(const LayoutVersions& theirs) {
  struct Page {
    const char* name;
    std::uint16_t their_major, their_minor;
    std::uint32_t our_major, our_minor;
  };
  for (const Page& page :
       {Page{"ledger", theirs.ledger_major, theirs.ledger_minor, kLedgerMajor, kLedgerMinor},
        Page{"job page", theirs.job_page_major, theirs.job_page_minor, kJobPageMajor, kJobPageMinor},
        Page{"report page", theirs.report_page_major, theirs.report_page_minor, kReportPageMajor,
             kReportPageMinor}}) {
    if (page.their_major == page.our_major) continue;
    const auto version = [](std::uint32_t major, std::uint32_t minor) {
      return std::to_string(major) + "." + std::to_string(minor);
    };
    return Error{Errc::protocol, std::string("the other side has ") + page.name + " layout " +
                                     version(page.their_major, page.their_minor) + ", this side " +
                                     version(page.our_major, page.our_minor) +
                                     ": install the same version of Apportion for broker and programs"};
  }
  return Done{};
}

std::span<const std::byte> bytes_of(const Message& message) {
  return std::visit([](const auto& m) { return bytes_of(m); }, message);
}

}  // namespace apportion::wire
