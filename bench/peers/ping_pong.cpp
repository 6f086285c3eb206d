#include "bench/peers/ping_pong.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "bench/peers/fd_message.hpp"

namespace apportion::bench {
namespace {

[[noreturn]] void answer(int socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int chunk = ::memfd_create("ping-pong", MFD_CLOEXEC);
  std::array<char, PingPong::kBytes> bytes{};
  while (::recv(socket, bytes.data(), bytes.size(), 0) > 0 &&
         send_with_fds(socket, bytes.data(), bytes.size(), {&chunk, 1}) > 0) {
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<PingPong>> PingPong::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("cannot make a socket pair", errno);
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("cannot fork", errno);
  if (pid == 0) {
    ours.reset();
    answer(theirs.get());
  }
  return std::unique_ptr<PingPong>(new PingPong(std::move(ours), pid));
}

PingPong::~PingPong() {
  socket_.reset();
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool PingPong::exchange() noexcept {
  std::array<char, kBytes> bytes{};
  std::array<int, kMostFds> fds{};
  std::size_t count = 0;
  if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return false;
  if (receive_with_fds(socket_.get(), bytes.data(), bytes.size(), fds.data(), count) <= 0) return false;
  for (std::size_t i = 0; i < count; ++i)
    ::close(fds[i]);
  return count == 1;
}

}  // namespace apportion::bench
