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
constexpr int kNotStarted = 127;                 // as a shell says it
constexpr std::chrono::milliseconds kRetry{10};  // where no event says that there is room again

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  switch (WEXITSTATUS(status)) {
    case kHelperNoDevice:
      return "it could not open the device; its own line on standard error says why";
    case kHelperBrokenContext:
      return "its context broke";
    case kNotStarted:
      return "its program could not be started";
    default:
      return "exit code " + std::to_string(WEXITSTATUS(status));
  }
}

// It never came so far as to read what it was given.
bool never_began(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == kHelperNoDevice || WEXITSTATUS(status) == kNotStarted);
}

std::vector<ChunkId> ids_of(const std::vector<HelperLink::Piece>& pieces) {
  std::vector<ChunkId> ids;
  for (const HelperLink::Piece& piece : pieces)
    ids.push_back(piece.id);
  return ids;
}

// Between fork and exec only what is safe beside other threads: everything else is ready in `argv`.
[[noreturn]] void become_helper(const char* program, int channel, const std::vector<char*>& argv) {
  // Descriptor 3 is the broker's still, and in this child nobody's; should it be the channel itself, dup2
  // would leave close-on-exec on it.
  if (channel == kHelperChannel) channel = dup(channel);
  if (dup2(channel, kHelperChannel) != kHelperChannel) _exit(kNotStarted);
  // What the driver or a library opened without close-on-exec stays the broker's.
  close_range(kHelperChannel + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execv(program, argv.data());
  _exit(kNotStarted);
}

}  // namespace

HelperLink::HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answer answer,
                       HelperSetup setup)
    : loop_(loop),
      argv_(std::move(argv)),
      export_(std::move(exporter)),
      answer_(std::move(answer)),
      setup_(std::move(setup)) {}

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
  if (phase_ != Phase::none) return;
  timer_.reset();
  if (queue_.empty()) {
    // Its context is memory that somebody may watch; it is cheap to start another.
    if (pid_ != 0) timer_ = loop_.after(setup_.idle, [this] { leave(); });
    return;
  }
  phase_ = Phase::exporting;
  export_(ids_of(queue_.front()), [this, alive = std::weak_ptr(alive_)](Result<std::vector<Fd>> fds) {
    if (alive.expired()) return;
    if (!fds.ok()) return finish(Failure{How::refused, fds.error().message});
    fds_ = *std::move(fds);
    if (pid_ == 0)
      if (const Status started = start(); !started.ok()) return no_helper(started.error().message);
    phase_ = Phase::sending;
    send_until_ = std::chrono::steady_clock::now() + setup_.patience;
    send();
  });
}

Status HelperLink::start() {
  if (killed_.size() >= kMostKilled)
    return Error{Errc::busy, "cannot start the helper: the last " + std::to_string(killed_.size()) +
                                 " were killed and have not ended yet; the driver or the GPU hangs"};
  Result<channel::Pair> pair = channel::make_pair();
  if (!pair.ok()) return pair.error();
  std::vector<std::string> words = argv_;
  words.insert(words.end(),
               {kHelperFlag, std::to_string(kHelperChannel), kHelperBrokerFlag, std::to_string(getpid())});
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return system_error("cannot start the helper: fork", errno);
  if (pid == 0) become_helper(setup_.program.c_str(), pair->second.get(), argv);
  Result<Fd> pidfd = open_pidfd(pid);
  if (pidfd.ok()) readable_ = loop_.on_readable(pair->first.get(), [this] { read(); });
  if (!pidfd.ok() || !readable_) {  // F30
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return pidfd.ok() ? Error{Errc::system, "no room to watch the helper's socket"} : pidfd.error();
  }
  pid_ = pid;
  channel_ = std::move(pair->first);
  processes_[pid] = std::make_unique<ProcessWatch>(loop_, *std::move(pidfd), [this, pid] { reaped(pid); });
  log::info("helper", {{"what", "started"}, {"pid", std::to_string(pid)}});
  return Done{};
}

void HelperLink::send() {
  const std::vector<Piece>& pieces = queue_.front();
  auto message = wire::make<wire::Scrub>(++request_, 0);
  message.part.count = static_cast<std::uint32_t>(pieces.size());
  std::vector<int> fds;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    message.entries[i] = {.chunk_id = pieces[i].id.value, .bytes = pieces[i].bytes.value};
    fds.push_back(fds_[i].get());
  }
  const Result<channel::Sent> sent = channel::try_send(channel_.get(), wire::bytes_of(message), fds);
  if (!sent.ok()) {
    // It hung up: it is about to end, or hangs in that. Else it lives, and no word of ours came through.
    if (sent.error().code == Errc::disconnected) return give_up("it closed its socket");
    return finish(Failure{How::refused, sent.error().message});
  }
  if (*sent == channel::Sent::yes) {
    fds_.clear();
    phase_ = Phase::sent;
    timer_ = loop_.after(setup_.patience, [this] {
      give_up("it did not answer for " + std::to_string(setup_.patience.count()) + " ms");
    });
  } else if (std::chrono::steady_clock::now() < send_until_) {
    timer_ = loop_.after(kRetry, [this] { send(); });
  } else {
    give_up("it did not read for " + std::to_string(setup_.patience.count()) + " ms");
  }
}

void HelperLink::read() {
  channel::Datagram datagram;
  const Result<bool> got = channel::try_receive(channel_.get(), datagram);
  if (got.ok() && !*got) return;
  Result<wire::Message> message = got.ok() ? wire::decode(datagram.bytes(), wire::Sender::helper_pair)
                                           : Result<wire::Message>(got.error());
  const auto* answer = message.ok() ? std::get_if<wire::Scrubbed>(&*message) : nullptr;
  if (answer == nullptr || phase_ != Phase::sent || answer->header.request_id != request_) {
    readable_.reset();
    // One that hung up is about to end; one that talks nonsense is made to.
    if (got.ok()) give_up("it answered nonsense");
    return;
  }
  if (answer->code == 0) return finish(std::nullopt);
  const std::string why = "the helper: " + std::string(answer->text.view());
  // It ends where its context is broken, and one without a context is no use: the next try has a new one.
  leave();
  if (answer->tried == 0) return no_helper(why);
  finish(Failure{How::refused, why});
}

void HelperLink::finish(const std::optional<Failure>& failure) {
  fds_.clear();
  timer_.reset();
  const std::vector<ChunkId> ids = ids_of(queue_.front());
  queue_.pop_front();
  phase_ = Phase::none;
  answer_(ids, failure);  // may ask for more
  next();
}

// Each of them would wait for one more that cannot be had.
void HelperLink::no_helper(const std::string& why) {
  fds_.clear();
  timer_.reset();
  const std::deque<std::vector<Piece>> waiting = std::exchange(queue_, {});
  phase_ = Phase::none;
  for (const std::vector<Piece>& each : waiting)
    answer_(ids_of(each), Failure{How::untried, why});
  next();
}

void HelperLink::leave() {
  readable_.reset();
  channel_.reset();
  pid_ = 0;
}

// SIGKILL ends it when the kernel gets to it, which may be never while the driver hangs: nobody waits.
void HelperLink::give_up(const std::string& why) {
  log::warning("lost", {{"what", "helper"}, {"pid", std::to_string(pid_)}, {"how", why}});
  ::kill(pid_, SIGKILL);
  killed_.insert(pid_);
  leave();
  without_it(why);
}

// F52: it may have them yet, and its GPU work may not be over.
void HelperLink::without_it(const std::string& why) {
  if (phase_ == Phase::sent) return finish(Failure{How::lost, "the helper died (" + why + ")"});
  if (phase_ == Phase::sending) finish(Failure{How::untried, "the helper died (" + why + ")"});
}

void HelperLink::reaped(pid_t pid) {
  processes_.erase(pid);
  killed_.erase(pid);
  int status = 0;
  waitpid(pid, &status, 0);
  if (pid != pid_) return;  // we had left it
  const std::string how = how_it_ended(status);
  log::warning("lost", {{"what", "helper"}, {"pid", std::to_string(pid)}, {"how", how}});
  leave();
  if (phase_ == Phase::sent && never_began(status)) return no_helper("the helper ended: " + how);
  without_it(how);
}

}  // namespace apportion
