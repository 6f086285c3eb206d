#include "shm/wire.hpp"

#include <cstring>
#include <vector>

#include "sample_messages.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;
using wire::Sender;

namespace {

std::vector<std::byte> copy_of(const wire::Message& message) {
  const auto bytes = wire::bytes_of(message);
  return {bytes.begin(), bytes.end()};
}

void set_u32(std::vector<std::byte>& bytes, std::size_t offset, std::uint32_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}
void set_u16(std::vector<std::byte>& bytes, std::size_t offset, std::uint16_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <typename M>
Result<wire::Message> decode_changed(const M& message, Sender sender) {
  return wire::decode(wire::bytes_of(message), sender);
}

template <typename M>
M sample() {
  for (const wire::Message& message : sample_messages()) {
    if (const M* found = std::get_if<M>(&message)) return *found;
  }
  FAIL("no sample of this type");
  return {};
}

}  // namespace

TEST_CASE("every type of message has a sample, and decodes to the bytes it was") {
  const auto messages = sample_messages();
  CHECK(messages.size() == std::variant_size_v<wire::Message>);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    CAPTURE(wire::to_text(static_cast<wire::Type>(wire::header_of(messages[i]).type)));
    REQUIRE(messages[i].index() == i);
    const auto bytes = wire::bytes_of(messages[i]);
    CHECK(bytes.size() <= wire::kMaxDatagramBytes);
    const auto decoded = wire::decode(bytes, sender_of(messages[i]));
    REQUIRE(decoded.ok());
    REQUIRE(decoded->index() == i);
    CHECK(std::memcmp(wire::bytes_of(*decoded).data(), bytes.data(), bytes.size()) == 0);
  }
}

TEST_CASE("F24: a message cut at any length is refused") {
  for (const wire::Message& message : sample_messages()) {
    const auto bytes = copy_of(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      auto cut = bytes;
      cut.resize(length);
      REQUIRE_FALSE(wire::decode(cut, sender_of(message)).ok());
      if (length < sizeof(wire::Header)) continue;
      set_u32(cut, offsetof(wire::Header, size), static_cast<std::uint32_t>(length));  // the header agrees
      REQUIRE_FALSE(wire::decode(cut, sender_of(message)).ok());
    }
  }
}

TEST_CASE("F24: random bytes behind a valid header are refused or decode to something within bounds") {
  const std::uint64_t seed = 20240601;
  INFO("seed " << seed);
  Random random(seed);
  std::size_t accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::array<std::byte, wire::kMaxDatagramBytes> bytes;
    const auto messages = static_cast<std::uint16_t>(1 + random.below(200));
    const std::size_t size = random.below(4) == 0 ? 32 + 8 * random.below(8) : random.below(bytes.size() + 1);
    for (std::size_t i = 0; i + 8 <= size; i += 8) {
      const std::uint64_t word = random.below(3) == 0 ? random.next() : random.below(4);
      std::memcpy(bytes.data() + i, &word, sizeof word);
    }
    wire::Header header;
    header.type = messages;
    header.size = static_cast<std::uint32_t>(size);
    std::memcpy(bytes.data(), &header, std::min(sizeof header, size));
    for (const Sender sender : {Sender::client, Sender::broker, Sender::keeper_pair, Sender::helper_pair}) {
      const auto decoded = wire::decode(std::span(bytes).first(size), sender);
      if (!decoded.ok()) continue;
      ++accepted;
      REQUIRE(wire::fds_of(*decoded) <= wire::kMaxFds);
      REQUIRE(sender_of(*decoded) == sender);
    }
  }
  CHECK(accepted > 0);  // else the loop proves only that nothing is let in
}

TEST_CASE("a side cannot send what is another side's") {
  for (const wire::Message& message : sample_messages()) {
    for (const Sender sender : {Sender::client, Sender::broker, Sender::keeper_pair, Sender::helper_pair}) {
      CHECK(wire::decode(wire::bytes_of(message), sender).ok() == (sender == sender_of(message)));
    }
  }
}

TEST_CASE("F19: another major is refused by name") {
  for (const wire::Message& message : sample_messages()) {
    auto bytes = copy_of(message);
    set_u16(bytes, offsetof(wire::Header, major), 2);
    const auto decoded = wire::decode(bytes, sender_of(message));
    REQUIRE_FALSE(decoded.ok());
    CHECK(decoded.error().code == Errc::protocol);
    CHECK(decoded.error().message.find("the other side speaks protocol 2.1, this side 1.1") !=
          std::string::npos);
    CHECK(wire::decode_header(bytes).ok());  // so that it can be answered
  }
}

TEST_CASE("F19: a longer message of a newer minor is read, one of our own minor is not") {
  for (const wire::Message& message : sample_messages()) {
    auto bytes = copy_of(message);
    const std::size_t known = bytes.size();
    bytes.resize(std::min(known + 24, wire::kMaxDatagramBytes), std::byte{0x5a});
    REQUIRE(bytes.size() > known);
    set_u32(bytes, offsetof(wire::Header, size), static_cast<std::uint32_t>(bytes.size()));
    CHECK_FALSE(wire::decode(bytes, sender_of(message)).ok());
    set_u16(bytes, offsetof(wire::Header, minor), wire::kMinor + 1);
    const auto decoded = wire::decode(bytes, sender_of(message));
    REQUIRE(decoded.ok());
    CHECK(decoded->index() == message.index());
  }
}

TEST_CASE("F19: page layouts of another major are refused by name, those of another minor are not") {
  wire::LayoutVersions theirs = wire::current_layouts();
  theirs.ledger_minor = theirs.job_page_minor = theirs.report_page_minor = 9;
  CHECK(wire::check_layouts(theirs).ok());
  theirs.job_page_major = 2;
  const auto refused = wire::check_layouts(theirs);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("job page layout 2.9, this side 1.1") != std::string::npos);
}

TEST_CASE("wrong magic, wrong size and an unknown type are refused") {
  auto bytes = copy_of(sample<wire::Request>());
  SECTION("magic") {
    bytes[0] = std::byte{0};
  }
  SECTION("size in the header") {
    set_u32(bytes, offsetof(wire::Header, size), 57);
  }
  SECTION("type 0") {
    set_u16(bytes, offsetof(wire::Header, type), 0);
  }
  SECTION("type 9") {
    set_u16(bytes, offsetof(wire::Header, type), 9);
  }
  CHECK_FALSE(wire::decode(bytes, Sender::client).ok());
}

TEST_CASE("counts and part numbers out of range are refused") {
  auto release = sample<wire::Release>();
  SECTION("count") {
    release.part.count = wire::kMaxIds + 1;
  }
  SECTION("count near the end of its type") {
    release.part.count = ~std::uint32_t{0};
  }
  SECTION("part") {
    release.part.part = release.part.parts;
  }
  SECTION("no parts") {
    release.part = {0, 0, 0, 0};
  }
  SECTION("too many parts") {
    release.part.parts = wire::kMaxParts + 1;
  }
  CHECK_FALSE(decode_changed(release, Sender::client).ok());
}

TEST_CASE("texts without an end or with control characters are refused") {
  auto hello = sample<wire::Hello>();
  SECTION("no end") {
    hello.job.chars.fill('x');
  }
  SECTION("line break") {
    hello.job.chars[2] = '\n';
  }
  SECTION("escape") {
    hello.label.chars[0] = '\x1b';
  }
  SECTION("delete") {
    hello.label.chars[0] = '\x7f';
  }
  CHECK_FALSE(decode_changed(hello, Sender::client).ok());
}

TEST_CASE("texts beyond the count of a list are nobody's business") {
  auto jobs = sample<wire::StatusJobs>();
  jobs.rows[1].job.name.chars.fill('x');
  CHECK(decode_changed(jobs, Sender::broker).ok());
  jobs.part.count = 2;
  CHECK_FALSE(decode_changed(jobs, Sender::broker).ok());
}

TEST_CASE("a request of nothing, or with a minimum above what it wants, is invalid") {
  auto request = sample<wire::Request>();
  SECTION("nothing") {
    request.min_bytes = request.want_bytes = 0;
  }
  SECTION("minimum") {
    request.min_bytes = request.want_bytes + 1;
  }
  const auto decoded = decode_changed(request, Sender::client);
  REQUIRE_FALSE(decoded.ok());
  CHECK(decoded.error().code == Errc::invalid);
}

TEST_CASE("unknown kinds, codes and empty grants are refused") {
  auto grant = sample<wire::Grant>();
  grant.kind = 3;
  CHECK_FALSE(decode_changed(grant, Sender::broker).ok());
  grant = sample<wire::Grant>();
  grant.entries[1].bytes = 0;
  CHECK_FALSE(decode_changed(grant, Sender::broker).ok());
  grant = sample<wire::Grant>();
  grant.kind = static_cast<std::uint32_t>(wire::GrantKind::credit);
  CHECK_FALSE(decode_changed(grant, Sender::broker).ok());  // a credit is one entry
  auto put = sample<wire::Put>();
  put.entries[3].kind = 5;
  CHECK_FALSE(decode_changed(put, Sender::keeper_pair).ok());
  auto scrub = sample<wire::Scrub>();
  scrub.entries[2].bytes = 0;
  CHECK_FALSE(decode_changed(scrub, Sender::helper_pair).ok());
  auto refusal = sample<wire::Refusal>();
  refusal.code = static_cast<std::uint32_t>(Errc::timed_out) + 1;
  CHECK_FALSE(decode_changed(refusal, Sender::broker).ok());
  auto reclaim = sample<wire::Reclaim>();
  reclaim.bytes = 0;
  CHECK_FALSE(decode_changed(reclaim, Sender::broker).ok());
  auto reclaimed = sample<wire::Reclaimed>();
  reclaimed.code = static_cast<std::uint32_t>(Errc::timed_out) + 2;
  CHECK_FALSE(decode_changed(reclaimed, Sender::client).ok());
}

TEST_CASE("the number of fds follows from the message") {
  for (const wire::Message& message : sample_messages()) {
    std::size_t expected = 0;
    if (std::holds_alternative<wire::Welcome>(message)) expected = 3;
    if (std::holds_alternative<wire::Grant>(message)) expected = 2;
    if (std::holds_alternative<wire::Put>(message)) expected = 4;
    if (std::holds_alternative<wire::Scrub>(message)) expected = 3;
    CHECK(wire::fds_of(message) == expected);
  }
  auto credit = sample<wire::Grant>();
  credit.kind = static_cast<std::uint32_t>(wire::GrantKind::credit);
  credit.part.count = 1;
  CHECK(wire::fds_of(wire::Message(credit)) == 0);
}

TEST_CASE("a text is cut to its room and cleaned of control characters") {
  wire::Text<8> text("one\ntwo three");
  CHECK(text.view() == "one?two");
  CHECK(text.valid());
  text.set("a");
  CHECK(text.view() == "a");
  CHECK(text.chars[2] == '\0');  // nothing of the longer text remains
}

TEST_CASE("a long list is cut into parts in order, and an empty one is one empty part") {
  std::vector<std::uint64_t> ids(2 * wire::kMaxIds + 1);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = i;
  std::vector<std::uint64_t> came;
  std::uint32_t parts = 0;
  wire::for_each_part<wire::Release>(
      ids.size(), wire::kMaxIds, 9, 2, [&](wire::Release& release, std::size_t first, std::size_t count) {
        std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(first), count, release.ids.begin());
        CHECK(release.part.part == parts++);
        CHECK(release.part.parts == 3);
        CHECK(release.header.request_id == 9);
        REQUIRE(decode_changed(release, Sender::client).ok());
        came.insert(came.end(), release.ids.begin(), release.ids.begin() + release.part.count);
      });
  CHECK(came == ids);
  int calls = 0;
  wire::for_each_part<wire::Leases>(0, wire::kMaxLeases, 1, 1,
                                    [&](wire::Leases& leases, std::size_t, std::size_t count) {
                                      ++calls;
                                      CHECK(count == 0);
                                      CHECK(decode_changed(leases, Sender::client).ok());
                                    });
  CHECK(calls == 1);
}
