#include "shm/peer.hpp"

#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>

#include "shm/socket_path.hpp"
#include "support.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

// A client that connects, runs `before` first, and lives until the parent's end of `hold` closes.
struct Client {
  template <typename Before>
  Client(const std::string& path, int listening_socket, Before before) {
    auto pair = channel::make_pair();
    REQUIRE(pair.ok());
    pid = start_child([&] {
      pair->first.reset();
      if (!before()) return 1;
      const auto connected = connect_to(path);
      if (!connected.ok()) return 2;
      channel::Datagram datagram;
      return channel::receive(pair->second.get(), datagram, soon(60)).error().code == Errc::disconnected ? 0
                                                                                                         : 3;
    });
    hold = std::move(pair->first);
    pollfd entry{listening_socket, POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 20'000) == 1);
    auto accepted = accept_from(listening_socket);
    REQUIRE(accepted.ok());
    socket = std::move(*accepted);
  }
  int end() {
    hold.reset();
    return wait_for_child(pid);
  }

  pid_t pid = 0;
  Fd hold;
  Fd socket;
};

struct Server {
  Server() {
    auto listening = listen_at(path, 0666);
    REQUIRE(listening.ok());
    socket = std::move(*listening);
    REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);  // mkdtemp's 0700 would keep other uids out
  }
  Folder folder;
  std::string path = folder / "broker.sock";
  Fd socket;
};

constexpr auto kNothing = [] { return true; };

}  // namespace

TEST_CASE("a peer is who the kernel says, by socket and by pid alike") {
  Server server;
  Client client(server.path, server.socket.get(), kNothing);
  for (const PidfdSource source : {PidfdSource::automatic, PidfdSource::by_pid}) {
    const auto peer = identify_peer(client.socket.get(), source);
    REQUIRE(peer.ok());
    CHECK(peer->pid == client.pid);
    CHECK(peer->uid == ::geteuid());
    CHECK(peer->gid == ::getegid());
    CHECK(peer->start_time == process_start_time(client.pid).value());
    REQUIRE(peer->pidfd.valid());
    CHECK((::fcntl(peer->pidfd.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK_FALSE(has_exited(peer->pidfd));
  }
  const auto peer = identify_peer(client.socket.get());
  REQUIRE(peer.ok());
  CHECK(client.end() == 0);
  CHECK(has_exited(peer->pidfd));
}

TEST_CASE("the uid and all groups of a peer of another uid are known") {
  if (!is_root()) APPORTION_SKIP("needs root to become another uid");
  Server server;
  Client client(server.path, server.socket.get(), [] {
    std::vector<gid_t> groups;
    for (gid_t group = 40'000; group < 40'100; ++group)
      groups.push_back(group);  // more than the first guess
    return ::setgroups(groups.size(), groups.data()) == 0 && ::setgid(kStranger) == 0 &&
           ::setuid(kStranger) == 0;
  });
  for (const PidfdSource source : {PidfdSource::automatic, PidfdSource::by_pid}) {
    const auto peer = identify_peer(client.socket.get(), source);
    REQUIRE(peer.ok());
    CHECK(peer->uid == kStranger);
    CHECK(peer->gid == kStranger);
    CHECK(peer->groups.size() == 100);
    CHECK(std::count(peer->groups.begin(), peer->groups.end(), 40'099) == 1);
  }
  CHECK(client.end() == 0);
}

TEST_CASE("F09: a peer that died before it was accepted is refused, and costs no fd") {
  Server server;
  REQUIRE(run_child([&] { return connect_to(server.path).ok() ? 0 : 1; }) == 0);
  auto accepted = accept_from(server.socket.get());
  REQUIRE(accepted.ok());
  const std::size_t before = open_fds();
  for (const PidfdSource source : {PidfdSource::automatic, PidfdSource::by_pid}) {
    const auto peer = identify_peer(accepted->get(), source);
    REQUIRE_FALSE(peer.ok());
    CHECK(peer.error().code == Errc::disconnected);
  }
  CHECK(open_fds() == before);
}

TEST_CASE("F08: a stranger who got the pid of a dead peer is not taken for it") {
  if (!is_root()) APPORTION_SKIP("needs root to choose a pid");
  Server server;
  const pid_t pid = start_child([&] { return connect_to(server.path).ok() ? 0 : 1; });
  REQUIRE(wait_for_child(pid) == 0);
  auto accepted = accept_from(server.socket.get());
  REQUIRE(accepted.ok());
  auto hold = channel::make_pair();
  REQUIRE(hold.ok());

  pid_t wanted = pid;
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&wanted);
  arguments.set_tid_size = 1;
  const auto stranger = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (stranger == 0) {
    hold->first.reset();
    channel::Datagram datagram;
    static_cast<void>(channel::receive(hold->second.get(), datagram, soon(60)));
    ::_exit(0);
  }
  if (stranger < 0) APPORTION_SKIP("clone3 with a chosen pid is not allowed here");
  REQUIRE(stranger == pid);
  for (const PidfdSource source : {PidfdSource::automatic, PidfdSource::by_pid}) {
    const auto peer = identify_peer(accepted->get(), source);
    REQUIRE_FALSE(peer.ok());
    CHECK(peer.error().code == Errc::disconnected);
  }
  hold->first.reset();
  CHECK(wait_for_child(stranger) == 0);
}

TEST_CASE("F10: a peer outside our pid namespace has no pid, and by number nothing to hold on to") {
  if (!is_root()) APPORTION_SKIP("needs root for a pid namespace");
  Server server;
  Client client(server.path, server.socket.get(), kNothing);
  const int code = run_child([&] {
    if (::unshare(CLONE_NEWPID) != 0) return 50;
    return run_child([&] {  // pid 1 of the new namespace
      const auto by_number = identify_peer(client.socket.get(), PidfdSource::by_pid);
      if (!by_number.ok() || by_number->pid != 0 || by_number->pidfd.valid() || by_number->start_time != 0)
        return 1;
      const auto by_socket = identify_peer(client.socket.get());
      if (!by_socket.ok() || by_socket->pid != 0 || by_socket->uid != ::geteuid()) return 2;
      return has_exited(by_socket->pidfd) ? 3 : 0;
    });
  });
  if (code == 50) APPORTION_SKIP("a pid namespace is not allowed here");
  CHECK(code == 0);
  CHECK(client.end() == 0);
}

TEST_CASE("rule 33: a peer's PID namespace is ours, another, or not to be known") {
  Server server;
  Client here(server.path, server.socket.get(), kNothing);
  auto peer = identify_peer(here.socket.get());
  REQUIRE(peer.ok());
  CHECK(pid_namespace_of(*peer) == PidNamespace::same);
  CHECK(here.end() == 0);
  CHECK(pid_namespace_of(*peer) == PidNamespace::unknown);  // F08: who has its number now is not looked at
  peer->pid = 0;
  CHECK(pid_namespace_of(*peer) == PidNamespace::other);
  if (!is_root()) APPORTION_SKIP("needs root for a pid namespace");
  // Its connecting half runs as pid 1 of a namespace below ours, where it has a number of ours, too.
  Client below(server.path, server.socket.get(), [] {
    if (::unshare(CLONE_NEWPID) != 0) return false;
    const pid_t first = ::fork();
    if (first != 0) ::_exit(wait_for_child(first));
    return true;
  });
  const auto inside = identify_peer(below.socket.get());
  REQUIRE(inside.ok());
  CHECK(inside->pid != 0);
  CHECK(pid_namespace_of(*inside) == PidNamespace::other);
  CHECK(below.end() == 0);
}

TEST_CASE("the start time is read whatever a process calls itself") {
  const auto plain = process_start_time(::getpid());
  REQUIRE(plain.ok());
  CHECK(*plain > 0);
  const int code = run_child([] {
    const auto before = process_start_time(::getpid());
    if (::prctl(PR_SET_NAME, ") 7 (x) 8") != 0) return 1;
    const auto after = process_start_time(::getpid());
    return before.ok() && after.ok() && *before == *after ? 0 : 2;
  });
  CHECK(code == 0);
}

TEST_CASE("a process that does not exist is not found") {
  const pid_t pid = start_child([] { return 0; });
  wait_for_child(pid);
  CHECK(process_start_time(pid).error().code == Errc::not_found);
  CHECK(open_pidfd(pid).error().code == Errc::not_found);
}

TEST_CASE("F08: a pidfd by number and start time is of that process, and of none that has its number now") {
  auto pair = channel::make_pair();
  REQUIRE(pair.ok());
  const pid_t pid = start_child([&] {
    pair->first.reset();
    channel::Datagram datagram;
    return channel::receive(pair->second.get(), datagram, soon(60)).ok() ? 1 : 0;
  });
  const std::uint64_t start = process_start_time(pid).value();
  const Result<Fd> known = open_pidfd(pid, start);
  CHECK(known.ok());
  CHECK(open_pidfd(pid, 0).ok());  // unknown: the number is all there is
  CHECK(open_pidfd(pid, start + 1).error().code == Errc::not_found);
  pair->first.reset();
  pollfd ended{known->get(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, 20'000) == 1);
  CHECK(open_pidfd(pid, start).error().code == Errc::not_found);  // its parent has not looked yet
  CHECK(wait_for_child(pid) == 0);
  CHECK(open_pidfd(pid, start).error().code == Errc::not_found);
}
