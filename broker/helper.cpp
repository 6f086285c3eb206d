#include "broker/helper.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include "gpu/context.hpp"
#include "gpu/scrub.hpp"
#include "gpu/slab.hpp"
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
      if (!message.ok()) return 1;
      const Status done = serve(*message, datagram);
      if (exit_code_) return *exit_code_;
      // Rule 19: what broke the context breaks every later call in this process. Where others hold slabs of
      // it, they are not lost to an error that was this request's alone.
      if (done.ok() || done.error().code != Errc::driver) continue;
      if (slabs_.empty() || device_.driver().ctx_synchronize() != CUDA_SUCCESS) return kHelperBrokenContext;
    }
  }

  // Rule 35: nothing is freed that others have open, nor is the context destroyed under it. All of it goes
  // with the process.
  void end_now_if_slabs_are_out(int code) const {
    if (!slabs_.empty()) _exit(code);
  }

 private:
  // Does what is asked and answers it. Sets exit_code_ where this process has to end.
  Status serve(const wire::Message& message, channel::Datagram& datagram) {
    const std::uint64_t id = wire::header_of(message).request_id;
    if (const auto* scrub = std::get_if<wire::Scrub>(&message)) {
      Status done = channel::require_fds(datagram, wire::fds_of(message));
      if (done.ok()) done = need_context();
      const bool tried = done.ok();
      if (tried) done = overwrite(*scrub, datagram.fds);
      datagram.fds.clear();         // before the answer: then nothing of these chunks is here any more
      if (exit_code_) return done;  // without one: they are lost with us
      return answer(wire::make<wire::Scrubbed>(id, 0), done, tried);
    }
    if (const auto* scrub = std::get_if<wire::ScrubSlabs>(&message))
      return answer(wire::make<wire::Scrubbed>(id, 0), overwrite(*scrub), true);
    if (const auto* make = std::get_if<wire::MakeSlab>(&message)) {
      auto made = wire::make<wire::SlabMade>(id, 0);
      Status done = need_context();
      const bool tried = done.ok();
      if (tried) done = make_slab(*make, made.handle);
      return answer(made, done, tried);
    }
    if (const auto* free = std::get_if<wire::FreeSlab>(&message))
      return answer(wire::make<wire::SlabFreed>(id, 0), free_slab(*free), true);
    exit_code_ = 1;
    return Error{Errc::protocol, "not for the helper"};
  }

  Status need_context() {
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
    bool kept = false;
    if (Status scrubbed = scrub(device_, run, kept); !scrubbed.ok()) return end_where(kept, scrubbed);
    for (Chunk& chunk : chunks)
      if (Status released = chunk.release(); !released.ok()) return end_where(true, released);
    return Done{};
  }

  // What the driver does not let go of goes with this process alone, before anybody takes it for free.
  Status end_where(bool kept, const Status& status) {
    if (kept) exit_code_ = kHelperBrokenContext;
    return status;
  }

  Status overwrite(const wire::ScrubSlabs& request) {
    for (std::size_t i = 0; i < request.part.count; ++i) {
      const auto slab = slabs_.find(request.ids[i]);
      if (slab == slabs_.end()) return unknown(request.ids[i]);
      APPORTION_FAULT_POINT("helper.before_scrub");
      if (Status scrubbed = slab->second.overwrite(); !scrubbed.ok()) return scrubbed;
    }
    return Done{};
  }

  Status make_slab(const wire::MakeSlab& request, IpcHandle& handle) {
    Result<Slab> slab = Slab::make(device_, Bytes{request.bytes});
    if (!slab.ok()) return slab.error();
    handle = slab->handle();
    slabs_.insert_or_assign(request.id, *std::move(slab));
    return Done{};
  }

  Status free_slab(const wire::FreeSlab& request) {
    const auto slab = slabs_.find(request.id);
    if (slab == slabs_.end()) return unknown(request.id);
    if (Status freed = slab->second.free(); !freed.ok()) return freed;
    slabs_.erase(slab);
    return Done{};
  }

  static Error unknown(std::uint64_t id) {
    return {Errc::not_found, "the helper has no slab " + std::to_string(id)};
  }

  template <typename Answer>
  Status answer(Answer message, const Status& done, bool tried) {
    if (!done.ok()) {
      message.code = 1 + static_cast<std::uint32_t>(done.error().code);
      message.tried = tried ? 1 : 0;
      message.text.set(done.error().message);
    }
    APPORTION_FAULT_POINT("helper.before_answer");
    Status sent = channel::send(channel_.get(), wire::bytes_of(message), {},
                                std::chrono::steady_clock::now() + kPatience);
    if (!sent.ok()) exit_code_ = 0;  // nobody takes answers any more
    return done;
  }

  Fd channel_;
  const Device& device_;
  std::optional<PrimaryContext> context_;
  std::map<std::uint64_t, Slab> slabs_;  // by the id of their lease; made in context_
  std::optional<int> exit_code_;
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
  Helper helper(std::move(channel), *device);
  const int code = helper.run();
  helper.end_now_if_slabs_are_out(code);
  return code;
}

}  // namespace apportion
