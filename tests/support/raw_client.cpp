// tests/support/raw_client.hpp.
#include "tests/support/raw_client.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "shm/socket_path.hpp"
#include "tests/support/catch.hpp"

namespace apportion::testing {

RawClient::RawClient(const std::string& socket_path) {
  Result<Fd> socket = connect_to(socket_path);
  INFO((socket.ok() ? std::string() : socket.error().message));
  REQUIRE(socket.ok());
  socket_ = *std::move(socket);
}

bool RawClient::send_bytes(std::span<const std::byte> bytes, std::span<const int> fds) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(fds.size_bytes()));
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(first), fds.data(), fds.size_bytes());
  }
  const auto deadline = Clock::now() + kPatience;
  while (::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) < 0) {
    if (errno != EAGAIN && errno != EINTR) return false;
    if (Clock::now() > deadline) return false;
    pollfd room{socket_.get(), POLLOUT, 0};
    (void)::poll(&room, 1, 100);
  }
  return true;
}

std::optional<RawClient::Received> RawClient::receive(std::chrono::milliseconds patience) {
  channel::Datagram datagram;
  if (!channel::receive(socket_.get(), datagram, Clock::now() + patience).ok()) return std::nullopt;
  Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::broker);
  REQUIRE(message.ok());
  return Received{*message, std::move(datagram.fds)};
}

bool RawClient::hung_up(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  channel::Datagram datagram;
  while (Clock::now() < deadline) {
    const Status got = channel::receive(socket_.get(), datagram, deadline);
    if (!got.ok() && got.error().code == Errc::disconnected) return true;
    datagram.fds.clear();
  }
  return false;
}

wire::Hello hello_message(const std::string& job) {
  auto hello = wire::make<wire::Hello>(1, 0);
  hello.job.set(job);
  hello.label.set("raw");
  hello.layouts = wire::current_layouts();
  return hello;
}

wire::Welcome RawClient::hello(const std::string& job) {
  next_request_ = 2;
  REQUIRE(send(hello_message(job)));
  auto answer = receive();
  REQUIRE(answer);
  const auto* welcome = std::get_if<wire::Welcome>(&answer->message);
  REQUIRE(welcome != nullptr);
  REQUIRE(answer->fds.size() == wire::Welcome::kFds);
  pages_ = std::move(answer->fds);
  epoch_ = welcome->header.epoch;
  return *welcome;
}

RawClient::Received RawClient::request(Bytes bytes) {
  auto request = wire::make<wire::Request>(next_request_++, epoch_);
  request.min_bytes = bytes.value;
  request.want_bytes = bytes.value;
  REQUIRE(send(request));
  auto answer = receive();
  REQUIRE(answer);
  return *std::move(answer);
}

}  // namespace apportion::testing
