#include "broker/helper.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <vector>

#include "gpu/context.hpp"
#include "gpu/scrub.hpp"
#include "shm/channel.hpp"
#include "shm/fault_point.hpp"
#include "shm/wire.hpp"

namespace apportion {
namespace {

constexpr std::chrono::seconds kPatience{
    10};  // for room in the socket: the broker reads one answer at a time

class Helper {
 public:
  Helper(Fd channel, const Device& device) : channel_(std::move(channel)), device_(device) {}

  int run() {
    channel::Datagram datagram;
    while (true) {
      pollfd readable{channel_.get(), POLLIN, 0};
      if (poll(&readable, 1, -1) < 0) continue;
      const Result<bool> got = channel::try_receive(channel_.get(), datagram);
      if (!got.ok()) return 0;  // the broker needs us no more, or is gone
      if (!*got) continue;
      const Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::helper_pair);
      const auto* request = message.ok() ? std::get_if<wire::Scrub>(&*message) : nullptr;
      if (request == nullptr) return 1;
      Status done = channel::require_fds(datagram, wire::fds_of(*message));
      if (done.ok()) done = have_context();
      const bool tried = done.ok();
      if (tried) done = overwrite(*request, datagram.fds);
      datagram.fds.clear();  // before the answer: then nothing of these chunks is here any more
      APPORTION_FAULT_POINT("helper.before_answer");
      if (!answer(request->header.request_id, done, tried)) return 0;
      // Rule 19: what broke the context breaks every later call in this process.
      if (!done.ok() && done.error().code == Errc::driver) return kHelperBrokenContext;
    }
  }

 private:
  Status have_context() {
    if (context_) return Done{};
    Result<PrimaryContext> made = PrimaryContext::retain(device_);
    if (!made.ok()) return Error{made.error().code, "no context: " + made.error().message};
    context_ = *std::move(made);
    return Done{};
  }

  Status overwrite(const wire::Scrub& request, const std::vector<Fd>& fds) {
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < fds.size(); ++i) {
      Result<Chunk> chunk = Chunk::import(device_, fds[i], Bytes{request.entries[i].bytes});
      if (!chunk.ok()) return chunk.error();
      chunks.push_back(*std::move(chunk));
    }
    std::vector<const Chunk*> run;
    for (const Chunk& chunk : chunks)
      run.push_back(&chunk);
    APPORTION_FAULT_POINT("helper.before_scrub");
    if (Status scrubbed = scrub(device_, run); !scrubbed.ok()) return scrubbed;
    for (Chunk& chunk : chunks)
      if (Status released = chunk.release(); !released.ok()) return released;
    return Done{};
  }

  bool answer(std::uint64_t request, const Status& done, bool tried) {
    auto message = wire::make<wire::Scrubbed>(request, 0);
    if (!done.ok()) {
      message.code = 1 + static_cast<std::uint32_t>(done.error().code);
      message.tried = tried ? 1 : 0;
      message.text.set(done.error().message);
    }
    return channel::send(channel_.get(), wire::bytes_of(message), {},
                         std::chrono::steady_clock::now() + kPatience)
        .ok();
  }

  Fd channel_;
  const Device& device_;
  std::optional<PrimaryContext> context_;
};

}  // namespace

int run_helper(Fd channel, const std::string& device_name, pid_t broker) {
  prctl(PR_SET_NAME, "apportiond-help");
  APPORTION_FAULT_POINT("helper.started");
  // With the broker, even where its end of the socket lives on in a process it forked.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // F11: one that died before that line may have left a SCRUB in the socket, and the next broker may have
  // granted those chunks.
  if (getppid() != broker) return kHelperOrphan;
  // A terminal's ^C is the keeper's and the broker's: they end us when they are done.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
    std::signal(signal, SIG_IGN);
  Result<Device> device = Device::open(device_name);
  if (!device.ok()) {
    std::fprintf(stderr, "apportiond: helper: %s\n", device.error().message.c_str());
    return kHelperNoDevice;
  }
  return Helper(std::move(channel), *device).run();
}

}  // namespace apportion
