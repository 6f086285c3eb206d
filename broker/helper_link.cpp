#include "broker/helper_link.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "broker/helper.hpp"
#include "broker/log.hpp"
#include "shm/channel.hpp"
#include "shm/peer.hpp"
#include "shm/wire.hpp"

namespace apportion {
namespace {

constexpr int kHelperChannel = 3;                // the number of the socket there
constexpr std::chrono::milliseconds kRetry{10};  // where no event says that there is room again

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  switch (WEXITSTATUS(status)) {
    case kHelperNoDevice:
      return "it could not open the device; its own line on standard error says why";
    case kHelperBrokenContext:
      return "its context broke";
    default:
      return "exit code " + std::to_string(WEXITSTATUS(status));
  }
}

std::vector<ChunkId> ids_of(const std::vector<HelperLink::Piece>& pieces) {
  std::vector<ChunkId> ids;
  for (const HelperLink::Piece& piece : pieces)
    ids.push_back(piece.id);
  return ids;
}

// Between fork and exec only what is safe beside other threads: everything else is ready in `argv`.
[[noreturn]] void become_helper(int channel, const std::vector<char*>& argv) {
  // Descriptor 3 is the broker's still, and in this child nobody's; should it be the channel itself, dup2
  // would leave close-on-exec on it.
  if (channel == kHelperChannel) channel = dup(channel);
  if (dup2(channel, kHelperChannel) != kHelperChannel) _exit(127);
  // What the driver or a library opened without close-on-exec stays the broker's.
  close_range(kHelperChannel + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

}  // namespace

HelperLink::HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answer answer)
    : loop_(loop), argv_(std::move(argv)), export_(std::move(exporter)), answer_(std::move(answer)) {}

HelperLink::~HelperLink() = default;

void HelperLink::scrub(const std::vector<Piece>& chunks) {
  for (std::size_t first = 0; first < chunks.size(); first += kMostChunks) {
    const auto from = chunks.begin() + static_cast<std::ptrdiff_t>(first);
    const std::size_t count = std::min(kMostChunks, chunks.size() - first);
    queue_.emplace_back(from, from + static_cast<std::ptrdiff_t>(count));
  }
  next();
}

void HelperLink::next() {
  if (busy_) return;
  timer_.reset();
  if (queue_.empty()) {
    // Its context is memory that somebody may watch; it is cheap to start another.
    if (pid_ != 0) timer_ = loop_.after(kIdle, [this] { leave(); });
    return;
  }
  busy_ = true;
  export_(ids_of(queue_.front()), [this, alive = std::weak_ptr(alive_)](Result<std::vector<Fd>> fds) {
    if (alive.expired()) return;
    if (!fds.ok()) return finish(fds.error());
    fds_ = *std::move(fds);
    if (pid_ == 0)
      if (const Status started = start(); !started.ok()) return finish(started);
    send();
  });
}

Status HelperLink::start() {
  Result<channel::Pair> pair = channel::make_pair();
  if (!pair.ok()) return pair.error();
  std::vector<std::string> words = argv_;
  words.insert(words.end(), {kHelperFlag, std::to_string(kHelperChannel)});
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return system_error("cannot start the helper: fork", errno);
  if (pid == 0) become_helper(pair->second.get(), argv);
  Result<Fd> pidfd = open_pidfd(pid);
  if (pidfd.ok()) readable_ = loop_.on_readable(pair->first.get(), [this] { read(); });
  if (!pidfd.ok() || !readable_) {  // F30
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return pidfd.ok() ? Error{Errc::system, "no room to watch the helper's socket"} : pidfd.error();
  }
  pid_ = pid;
  killed_for_.clear();
  channel_ = std::move(pair->first);
  processes_[pid] = std::make_unique<ProcessWatch>(loop_, *std::move(pidfd), [this, pid] { reaped(pid); });
  log::info("helper", {{"what", "started"}, {"pid", std::to_string(pid)}});
  return Done{};
}

void HelperLink::send() {
  at_helper_ = true;
  const std::vector<Piece>& pieces = queue_.front();
  auto message = wire::make<wire::Scrub>(++request_, 0);
  message.part.count = static_cast<std::uint32_t>(pieces.size());
  std::vector<int> fds;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    message.entries[i] = {.chunk_id = pieces[i].id.value, .bytes = pieces[i].bytes.value};
    fds.push_back(fds_[i].get());
  }
  const Result<channel::Sent> sent = channel::try_send(channel_.get(), wire::bytes_of(message), fds);
  if (!sent.ok()) return;  // it is gone: its pidfd tells the rest
  if (*sent != channel::Sent::yes) {
    timer_ = loop_.after(kRetry, [this] { send(); });
    return;
  }
  fds_.clear();
  timer_ = loop_.after(kPatience, [this] { kill("it did not answer for a minute"); });
}

void HelperLink::read() {
  channel::Datagram datagram;
  const Result<bool> got = channel::try_receive(channel_.get(), datagram);
  if (got.ok() && !*got) return;
  Result<wire::Message> message = got.ok() ? wire::decode(datagram.bytes(), wire::Sender::helper_pair)
                                           : Result<wire::Message>(got.error());
  const auto* answer = message.ok() ? std::get_if<wire::Scrubbed>(&*message) : nullptr;
  if (answer == nullptr || !busy_ || answer->header.request_id != request_) {
    readable_.reset();
    // One that hung up is about to end; one that talks nonsense is made to.
    if (got.ok()) kill("it answered nonsense");
    return;
  }
  Status done = Done{};
  if (answer->code != 0) {
    done = Error{static_cast<Errc>(answer->code - 1), "the helper: " + std::string(answer->text.view())};
    // It ends where its context is broken, and one without a context is no use: the next try has a new one.
    leave();
  }
  finish(done);
}

void HelperLink::finish(const Status& status) {
  fds_.clear();
  timer_.reset();
  at_helper_ = false;
  const std::vector<ChunkId> ids = ids_of(queue_.front());
  queue_.pop_front();
  busy_ = false;
  answer_(ids, status);  // may ask for more
  next();
}

void HelperLink::leave() {
  readable_.reset();
  channel_.reset();
  pid_ = 0;
}

void HelperLink::kill(const std::string& why) {
  killed_for_ = why;
  ::kill(pid_, SIGKILL);
}

void HelperLink::reaped(pid_t pid) {
  processes_.erase(pid);
  int status = 0;
  waitpid(pid, &status, 0);
  if (pid != pid_) return;  // we had left it
  const std::string how = killed_for_.empty() ? how_it_ended(status) : killed_for_;
  log::warning("lost", {{"what", "helper"}, {"pid", std::to_string(pid)}, {"how", how}});
  leave();
  // F52: what it was overwriting is as unknown as before.
  if (at_helper_) finish(Error{Errc::disconnected, "the helper died (" + how + ")"});
}

}  // namespace apportion
