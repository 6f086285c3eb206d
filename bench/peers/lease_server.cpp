#include "bench/peers/lease_server.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "bench/peers/fd_message.hpp"

namespace apportion::bench {
namespace {

struct Message {
  enum Kind : std::uint32_t { hello = 1, welcome, request, grant, refusal };
  std::uint32_t kind = 0;
  std::uint32_t count = 0;  // chunks
};

class Loop {
 public:
  Loop(int listener, std::uint32_t chunks, std::uint32_t guarantee)
      : listener_(listener), guarantee_(guarantee), page_(::memfd_create("page", MFD_CLOEXEC)) {
    for (std::uint32_t i = 0; i < chunks; ++i) {
      chunks_.push_back(::memfd_create("chunk", MFD_CLOEXEC));
      free_.push_back(i);
    }
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    watch(listener_);
  }

  [[noreturn]] void run() {
    std::array<epoll_event, 64> events{};
    for (;;) {
      const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.fd == listener_) {
          accept();
        } else {
          serve(events[i].data.fd);
        }
      }
    }
  }

 private:
  void watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void accept() {
    for (;;) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (client < 0) return;
      ucred peer{};
      socklen_t size = sizeof peer;
      if (::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::getuid()) {
        ::close(client);
        continue;
      }
      held_[client].clear();
      watch(client);
    }
  }

  void serve(int client) {
    Message message;
    const ssize_t got = ::recv(client, &message, sizeof message, 0);
    if (got < 0 && errno == EAGAIN) return;
    std::vector<std::uint32_t>& held = held_[client];
    if (got != sizeof message) {
      free_.insert(free_.end(), held.begin(), held.end());
      held_.erase(client);
      ::close(client);
      return;
    }
    if (message.kind == Message::hello) {
      message.kind = Message::welcome;
      send_with_fds(client, &message, sizeof message, {&page_, 1});
    } else if (message.kind == Message::request) {
      lease(client, message, held);
    }
  }

  void lease(int client, Message message, std::vector<std::uint32_t>& held) {
    std::array<int, kMostFds> fds{};
    const std::uint32_t count = message.count;
    if (count > fds.size() || held.size() + count > guarantee_ || count > free_.size()) {
      message.kind = Message::refusal;
      send_with_fds(client, &message, sizeof message, {});
      return;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      held.push_back(free_.back());
      fds[i] = chunks_[free_.back()];
      free_.pop_back();
    }
    message.kind = Message::grant;
    send_with_fds(client, &message, sizeof message, {fds.data(), count});
  }

  const int listener_;
  const std::uint32_t guarantee_;
  const int page_;
  int epoll_;
  std::vector<int> chunks_;          // their descriptors
  std::vector<std::uint32_t> free_;  // which of them
  std::map<int, std::vector<std::uint32_t>> held_;
};

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Error{Errc::invalid, path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace

Result<std::unique_ptr<LeaseServer>> LeaseServer::start(const std::string& path, std::uint32_t chunks,
                                                        std::uint32_t guarantee) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  const Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::listen(listener.get(), 128) != 0)
    return system_error("cannot listen at " + path, errno);
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot fork", errno);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    Loop(listener.get(), chunks, guarantee).run();
  }
  return std::unique_ptr<LeaseServer>(new LeaseServer(path, pid));
}

LeaseServer::~LeaseServer() {
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::unlink(path_.c_str());
}

Result<LeaseClient> LeaseClient::open(const std::string& path) {
  const Result<sockaddr_un> address = address_of(path);
  if (!address) return address.error();
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    return system_error("cannot connect to " + path, errno);
  Message message{Message::hello, 0};
  std::array<int, kMostFds> fds{};
  std::size_t count = 0;
  if (::send(socket.get(), &message, sizeof message, MSG_NOSIGNAL) < 0 ||
      receive_with_fds(socket.get(), &message, sizeof message, fds.data(), count) <= 0 || count != 1)
    return Error{Errc::disconnected, "the server at " + path + " did not answer HELLO"};
  return LeaseClient(std::move(socket), Fd(fds[0]));
}

Result<std::vector<Fd>> LeaseClient::request(std::uint32_t count) {
  Message message{Message::request, count};
  std::array<int, kMostFds> fds{};
  std::size_t came = 0;
  if (::send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL) < 0 ||
      receive_with_fds(socket_.get(), &message, sizeof message, fds.data(), came) <= 0)
    return Error{Errc::disconnected, "the server is gone"};
  std::vector<Fd> chunks;
  for (std::size_t i = 0; i < came; ++i)
    chunks.emplace_back(fds[i]);
  if (message.kind != Message::grant || came != count) return Error{Errc::quota, "refused"};
  return chunks;
}

}  // namespace apportion::bench
