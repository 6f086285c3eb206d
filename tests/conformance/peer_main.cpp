// The helper process: makes the driver calls that a test names (peer_protocol.hpp) and answers with their
// codes. It ends when its socket does, and with the test that started it.
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "driver.hpp"
#include "peer_calls.hpp"
#include "peer_socket.hpp"

namespace apportion::conformance {
namespace {

// Enters the namespace or uid that the environment asks for. Returns false where the kernel refuses.
bool enter() {
  if (std::getenv("PEER_NEW_PID_NAMESPACE") != nullptr) {
    if (::unshare(CLONE_NEWPID) != 0) return false;
    const pid_t child = ::fork();  // the first child is the first process of the new namespace
    if (child < 0) return false;
    if (child > 0) {
      ::close(kPeerSocket);
      int status = 0;
      ::waitpid(child, &status, 0);
      std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  if (const char* uid = std::getenv("PEER_UID")) {
    const auto wanted = static_cast<uid_t>(std::strtoul(uid, nullptr, 10));
    if (::setgroups(0, nullptr) != 0 || ::setgid(wanted) != 0 || ::setuid(wanted) != 0) return false;
  }
  return true;
}

int serve() {
  Reply hello;
  hello.code = enter() ? 0 : 1;
  if (!send_to(kPeerSocket, hello, -1)) return 1;
  Request request;
  int received = -1;
  while (receive_from(kPeerSocket, &request, &received)) {
    Reply reply;
    int fd = -1;
    reply.code = static_cast<std::int32_t>(answer(request, received, &reply, &fd));
    const bool sent = send_to(kPeerSocket, reply, fd);
    if (fd >= 0) ::close(fd);
    if (!sent) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace apportion::conformance

int main() {
  // A helper ends with the test program that started it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return apportion::conformance::serve();
}