#include "shm/channel.hpp"

#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>

#include "sample_messages.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

std::span<const std::byte> text(const char* words) {
  return std::as_bytes(std::span(words, std::strlen(words)));
}

// What a hostile peer can do that channel::try_send() cannot: any length, any number of fds.
bool send_raw(int socket, std::size_t length, const std::vector<int>& fds) {
  std::vector<char> bytes(length + 1);
  iovec vector{bytes.data(), length};
  std::vector<std::byte> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(length);
}

}  // namespace

TEST_CASE("a message arrives whole, with its fds in order and close-on-exec") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const int fds[] = {null.get(), zero.get()};
  REQUIRE(channel::send(pair->first.get(), text("hello"), fds, soon()).ok());
  channel::Datagram datagram;
  REQUIRE(channel::receive(pair->second.get(), datagram, soon()).ok());
  CHECK(std::memcmp(datagram.bytes().data(), "hello", 5) == 0);
  CHECK(datagram.size == 5);
  REQUIRE(channel::require_fds(datagram, 2).ok());
  for (int i = 0; i < 2; ++i) {
    CHECK((::fcntl(datagram.fds[static_cast<std::size_t>(i)].get(), F_GETFD) & FD_CLOEXEC) != 0);
    struct stat sent {};
    struct stat came {};
    ::fstat(fds[i], &sent);
    ::fstat(datagram.fds[static_cast<std::size_t>(i)].get(), &came);
    CHECK(sent.st_rdev == came.st_rdev);
  }
}

TEST_CASE("the largest message and 128 fds fit into one datagram") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const std::vector<std::byte> bytes(wire::kMaxDatagramBytes, std::byte{7});
  const auto fds = some_fds(wire::kMaxFds);
  REQUIRE(channel::send(pair->first.get(), bytes, numbers_of(fds), soon()).ok());
  channel::Datagram datagram;
  REQUIRE(channel::receive(pair->second.get(), datagram, soon()).ok());
  CHECK(datagram.size == wire::kMaxDatagramBytes);
  CHECK(datagram.fds.size() == wire::kMaxFds);
}

TEST_CASE("what is beyond the protocol's limits is not sent") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const std::vector<std::byte> bytes(wire::kMaxDatagramBytes + 1);
  const std::vector<int> fds(wire::kMaxFds + 1, 0);
  CHECK(channel::try_send(pair->first.get(), bytes).error().code == Errc::invalid);
  CHECK(channel::try_send(pair->first.get(), {}).error().code == Errc::invalid);
  CHECK(channel::try_send(pair->first.get(), text("x"), fds).error().code == Errc::invalid);
}

TEST_CASE("nothing to read, a deadline, and the end of the stream are three things") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  channel::Datagram datagram;
  const auto nothing = channel::try_receive(pair->second.get(), datagram);
  REQUIRE(nothing.ok());
  CHECK_FALSE(*nothing);
  const auto late = channel::receive(pair->second.get(), datagram,
                                     std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
  CHECK(late.error().code == Errc::timed_out);
  pair->first.reset();
  CHECK(channel::receive(pair->second.get(), datagram, soon()).error().code == Errc::disconnected);
  CHECK(channel::try_send(pair->second.get(), text("x")).error().code == Errc::disconnected);
}

TEST_CASE("what a peer sent before it died is read to the end") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  // Unread bytes in the dying end's own queue make the kernel put ECONNRESET in front of its last message.
  REQUIRE(channel::send(pair->second.get(), text("unread"), {}, soon()).ok());
  REQUIRE(channel::send(pair->first.get(), text("last words"), {}, soon()).ok());
  pair->first.reset();
  channel::Datagram datagram;
  REQUIRE(channel::receive(pair->second.get(), datagram, soon()).ok());
  CHECK(datagram.size == 10);
  CHECK(channel::receive(pair->second.get(), datagram, soon()).error().code == Errc::disconnected);
}

TEST_CASE("F27: a peer that does not read is seen as that, at once or at the deadline") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const std::vector<std::byte> bytes(wire::kMaxDatagramBytes);
  Result<channel::Sent> sent = channel::Sent::yes;
  for (int i = 0; i < 100'000 && sent.ok() && *sent == channel::Sent::yes; ++i) {
    sent = channel::try_send(pair->first.get(), bytes);
  }
  REQUIRE(sent.ok());
  CHECK(*sent == channel::Sent::would_block);
  const auto late = channel::send(pair->first.get(), bytes, {},
                                  std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
  CHECK(late.error().code == Errc::timed_out);
}

TEST_CASE("F24: an empty message is an error and not the end of the stream") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  REQUIRE(send_raw(pair->first.get(), 0, {}));
  REQUIRE(channel::send(pair->first.get(), text("next"), {}, soon()).ok());
  channel::Datagram datagram;
  CHECK(channel::receive(pair->second.get(), datagram, soon()).error().code == Errc::protocol);
  REQUIRE(channel::receive(pair->second.get(), datagram, soon()).ok());
  CHECK(datagram.size == 4);
}

TEST_CASE("F24: an oversized message is an error, its fds are closed, and the next message is read") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const auto fds = some_fds(3);
  const std::size_t before = open_fds();
  REQUIRE(send_raw(pair->first.get(), wire::kMaxDatagramBytes + 1, numbers_of(fds)));
  REQUIRE(channel::send(pair->first.get(), text("next"), {}, soon()).ok());
  channel::Datagram datagram;
  const auto received = channel::receive(pair->second.get(), datagram, soon());
  REQUIRE_FALSE(received.ok());
  CHECK(received.error().code == Errc::protocol);
  CHECK(open_fds() == before);
  CHECK(channel::receive(pair->second.get(), datagram, soon()).ok());
}

TEST_CASE("F25: fds that do not belong to a message are closed") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const std::size_t count = GENERATE(1, 128, 129, 253);
  const auto fds = some_fds(count);
  channel::Datagram datagram;
  const std::size_t before = open_fds();
  REQUIRE(send_raw(pair->first.get(), 32, numbers_of(fds)));
  REQUIRE(channel::receive(pair->second.get(), datagram, soon()).ok());
  CHECK(datagram.fds_lost == (count > wire::kMaxFds));
  const auto refused = channel::require_fds(datagram, 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::protocol);
  CHECK(open_fds() == before);
}

TEST_CASE("F25: an empty message with fds is an error, and they are closed") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const auto fds = some_fds(2);
  const std::size_t before = open_fds();
  REQUIRE(send_raw(pair->first.get(), 0, numbers_of(fds)));
  channel::Datagram datagram;
  CHECK(channel::receive(pair->second.get(), datagram, soon()).error().code == Errc::protocol);
  CHECK(open_fds() == before);
}

TEST_CASE("F26: with too few fd slots what came is closed, and the message still says what was lost") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const auto fds = some_fds(8);
  REQUIRE(channel::send(pair->first.get(), text("chunks 1 to 8"), numbers_of(fds), soon()).ok());
  const int code = run_child([&] {
    const std::size_t before = open_fds();
    int highest = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      highest = std::max(highest, std::stoi(entry.path().filename().string()));
    }
    std::vector<Fd> fill;  // every slot below the limit but three
    while (true) {
      Fd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (fd.get() > highest) break;
      fill.push_back(std::move(fd));
    }
    const rlimit limit{static_cast<rlim_t>(highest) + 4, static_cast<rlim_t>(highest) + 4};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 10;
    channel::Datagram datagram;
    if (!channel::receive(pair->second.get(), datagram, soon()).ok()) return 11;
    if (!datagram.fds_lost || !datagram.fds.empty()) return 12;
    if (datagram.size != 13) return 13;
    if (channel::require_fds(datagram, 8).error().message.find("RLIMIT_NOFILE") == std::string::npos)
      return 14;
    return open_fds() == before + fill.size() ? 0 : 15;
  });
  CHECK(code == 0);
}

TEST_CASE("rule 40: too many fds in flight are reported as that, and pass once they are read") {
  const int code = run_child([] {
    // The kernel's limit is per user, and not for root: become somebody with a small limit.
    if (is_root() && ::setuid(kStranger) != 0) return 10;
    const rlimit limit{256, 256};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 11;
    auto pair = channel::make_pair();
    if (!pair.ok()) return 12;
    const auto fds = some_fds(100);
    const auto numbers = numbers_of(fds);
    int sent = 0;
    for (;; ++sent) {
      const auto result = channel::try_send(pair->first.get(), text("x"), numbers);
      if (!result.ok()) return 13;
      if (*result == channel::Sent::too_many_in_flight) break;
      if (*result != channel::Sent::yes || sent > 10) return 14;
    }
    if (sent == 0) return 15;
    if (channel::send(pair->first.get(), text("x"), numbers, soon()).error().code != Errc::busy) return 16;
    channel::Datagram datagram;
    for (int i = 0; i < sent; ++i) {
      if (!channel::receive(pair->second.get(), datagram, soon()).ok()) return 17;
      datagram.fds.clear();
    }
    const auto again = channel::try_send(pair->first.get(), text("x"), numbers);
    return again.ok() && *again == channel::Sent::yes ? 0 : 18;
  });
  CHECK(code == 0);
}

TEST_CASE(
    "F54: a grant of an older epoch, read after a restart, is told by its header and dropped with its fds") {
  auto old_socket = channel::make_pair();
  REQUIRE(old_socket.ok());
  const auto fds = some_fds(2);
  const std::size_t before = open_fds();
  for (const wire::Message& message : sample_messages()) {
    if (!std::holds_alternative<wire::Grant>(message)) continue;
    REQUIRE(channel::send(old_socket->first.get(), wire::bytes_of(message), numbers_of(fds), soon()).ok());
  }
  old_socket->first.reset();  // the old broker is dead; its queue is not
  const std::uint64_t epoch_now = 4;
  channel::Datagram datagram;
  int dropped = 0;
  while (channel::receive(old_socket->second.get(), datagram, soon()).ok()) {
    const auto message = wire::decode(datagram.bytes(), wire::Sender::broker);
    REQUIRE(message.ok());
    if (wire::header_of(*message).epoch < epoch_now) ++dropped;
    datagram.fds.clear();
  }
  CHECK(dropped == 1);
  CHECK(open_fds() == before - 1);  // the old broker's end, nothing else
}
