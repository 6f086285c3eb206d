// A helper of the broker as no real one is: what it does is in the variable FAKE_HELPER. It has no context
// and no device; what it is asked to overwrite it lets go of.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "broker/helper.hpp"
#include "shm/channel.hpp"
#include "shm/wire.hpp"

using namespace apportion;

namespace {

constexpr int kChannel = 3;
constexpr std::chrono::seconds kPatience{60};

template <typename Message = wire::Scrubbed>
void answer(std::uint64_t request, std::uint32_t code, std::uint32_t tried) {
  auto message = wire::make<Message>(request, 0);
  message.code = code;
  message.tried = tried;
  message.text.set(code == 0 ? "" : "as it was told");
  (void)channel::send(kChannel, wire::bytes_of(message), {}, std::chrono::steady_clock::now() + kPatience);
}

// Whether it was about a slab.
bool answer_slab(const wire::Message& message, std::uint64_t request) {
  if (std::holds_alternative<wire::MakeSlab>(message)) {
    answer<wire::SlabMade>(request, 0, 0);
  } else if (std::holds_alternative<wire::FreeSlab>(message)) {
    answer<wire::SlabFreed>(request, 0, 0);
  } else if (std::holds_alternative<wire::ScrubSlabs>(message)) {
    answer(request, 0, 0);
  } else {
    return false;
  }
  return true;
}

[[noreturn]] void hang() {
  for (;;)
    pause();
}

constexpr std::uint32_t code_of(Errc error) {
  return 1 + static_cast<std::uint32_t>(error);
}

}  // namespace

int main() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that failed leaves nobody hanging
  const char* variable = std::getenv("FAKE_HELPER");
  const std::string does = variable != nullptr ? variable : "overwrites";
  if (does == "has no device") return kHelperNoDevice;
  for (;;) {
    channel::Datagram datagram;
    const Status got = channel::receive(kChannel, datagram, std::chrono::steady_clock::now() + kPatience);
    if (!got.ok()) return 0;  // as the real one: the broker needs us no more
    const Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::helper_pair);
    if (!message.ok()) return 1;
    datagram.fds.clear();
    const std::uint64_t request = wire::header_of(*message).request_id;
    if (does == "dies over a slab") std::raise(SIGKILL);
    if (answer_slab(*message, request)) continue;
    if (!std::holds_alternative<wire::Scrub>(*message)) return 1;
    if (does == "dies") std::raise(SIGKILL);
    if (does == "is silent") hang();
    if (does == "answers another request") answer(request + 1, 0, 0);
    if (does == "has no context") answer(request, code_of(Errc::out_of_memory), 0);
    if (does == "is refused by the driver") {
      answer(request, code_of(Errc::driver), 1);
      return kHelperBrokenContext;
    }
    if (does == "says what no helper says") {
      (void)channel::send(kChannel, wire::bytes_of(wire::make<wire::Pong>(request, 0)), {},
                          std::chrono::steady_clock::now() + kPatience);
    }
    if (does == "refuses and goes on") answer(request, code_of(Errc::driver), 1);
    if (does == "overwrites") answer(request, 0, 0);
    if (does == "hangs after its first") {
      answer(request, 0, 0);
      close(kChannel);
      hang();
    }
  }
}
