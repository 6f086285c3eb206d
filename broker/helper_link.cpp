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

HelperLink::HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answers answers,
                       HelperSetup setup)
    : loop_(loop),
      argv_(std::move(argv)),
      export_(std::move(exporter)),
      answers_(std::move(answers)),
      setup_(std::move(setup)) {}

HelperLink::~HelperLink() = default;

void HelperLink::scrub(const std::vector<Piece>& pieces) {
  for (const Task::Kind kind : {Task::Kind::scrub_chunks, Task::Kind::scrub_slabs}) {
    Task task{kind, {}};
    for (const Piece& piece : pieces) {
      if (piece.slab != (kind == Task::Kind::scrub_slabs)) continue;
      task.pieces.push_back(piece);
      if (task.pieces.size() == kMostChunks) queue_.push_back(std::exchange(task, Task{kind, {}}));
    }
    if (!task.pieces.empty()) queue_.push_back(std::move(task));
  }
  next();
}

void HelperLink::make_slab(ChunkId id, Bytes bytes) {
  push({Task::Kind::make_slab, {{id, bytes, true}}});
}

void HelperLink::free_slab(ChunkId id) {
  push({Task::Kind::free_slab, {{id, {}, true}}});
}

void HelperLink::push(Task task) {
  queue_.push_back(std::move(task));
  next();
}

void HelperLink::next() {
  if (phase_ != Phase::none) return;
  timer_.reset();
  if (queue_.empty()) {
    // Its context is memory that somebody may watch; it is cheap to start another. With slabs out it stays.
    if (pid_ != 0 && slabs_.empty()) timer_ = loop_.after(setup_.idle, [this] { leave(); });
    return;
  }
  phase_ = Phase::exporting;
  if (queue_.front().kind != Task::Kind::scrub_chunks) return go();
  export_(ids_of(queue_.front().pieces), [this, alive = std::weak_ptr(alive_)](Result<std::vector<Fd>> fds) {
    if (alive.expired()) return;
    if (!fds.ok()) return finish(Failure{How::refused, fds.error().message, fds.error().code});
    fds_ = *std::move(fds);
    go();
  });
}

void HelperLink::go() {
  if (pid_ == 0) {
    if (const Status started = start(); !started.ok())
      return no_helper(started.error().message, started.error().code);
  }
  phase_ = Phase::sending;
  send_until_ = std::chrono::steady_clock::now() + setup_.patience;
  send();
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

wire::Message HelperLink::request_of(const Task& task) const {
  switch (task.kind) {
    case Task::Kind::scrub_chunks: {
      auto message = wire::make<wire::Scrub>(request_, 0);
      message.part.count = static_cast<std::uint32_t>(task.pieces.size());
      for (std::size_t i = 0; i < task.pieces.size(); ++i)
        message.entries[i] = {.chunk_id = task.pieces[i].id.value, .bytes = task.pieces[i].bytes.value};
      return message;
    }
    case Task::Kind::scrub_slabs: {
      auto message = wire::make<wire::ScrubSlabs>(request_, 0);
      message.part.count = static_cast<std::uint32_t>(task.pieces.size());
      for (std::size_t i = 0; i < task.pieces.size(); ++i)
        message.ids[i] = task.pieces[i].id.value;
      return message;
    }
    case Task::Kind::make_slab: {
      auto message = wire::make<wire::MakeSlab>(request_, 0);
      message.id = task.pieces.front().id.value;
      message.bytes = task.pieces.front().bytes.value;
      return message;
    }
    case Task::Kind::free_slab:
      break;
  }
  auto message = wire::make<wire::FreeSlab>(request_, 0);
  message.id = task.pieces.front().id.value;
  return message;
}

void HelperLink::send() {
  ++request_;
  std::vector<int> fds;
  for (const Fd& fd : fds_)
    fds.push_back(fd.get());
  const wire::Message message = request_of(queue_.front());
  const Result<channel::Sent> sent = channel::try_send(channel_.get(), wire::bytes_of(message), fds);
  if (!sent.ok()) {
    // It hung up: it is about to end, or hangs in that. Else it lives, and no word of ours came through.
    if (sent.error().code == Errc::disconnected) return give_up("it closed its socket");
    return finish(Failure{How::refused, sent.error().message, sent.error().code});
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
  if (message.ok() && phase_ == Phase::sent && wire::header_of(*message).request_id == request_ &&
      take_answer(*message))
    return;
  readable_.reset();
  // One that hung up is about to end; one that talks nonsense is made to.
  if (got.ok()) give_up("it answered nonsense");
}

// False: not the answer to what was asked.
bool HelperLink::take_answer(const wire::Message& message) {
  const auto take = [this](const auto& answer, const IpcHandle& handle) {
    if (answer.code == 0) {
      finish(std::nullopt, handle);
      return true;
    }
    const std::string why = "the helper: " + std::string(answer.text.view());
    const auto code = static_cast<Errc>(answer.code - 1);
    // It ends where its context is broken, and one without a context is no use: the next try has a new one.
    // With slabs out it has to be kept, and says by its end that it cannot go on.
    if (slabs_.empty()) leave();
    if (answer.tried == 0 && slabs_.empty()) {
      no_helper(why, code);
    } else {
      finish(Failure{How::refused, why, code});
    }
    return true;
  };
  switch (queue_.front().kind) {
    case Task::Kind::scrub_chunks:
    case Task::Kind::scrub_slabs:
      if (const auto* answer = std::get_if<wire::Scrubbed>(&message)) return take(*answer, {});
      return false;
    case Task::Kind::make_slab:
      if (const auto* answer = std::get_if<wire::SlabMade>(&message)) return take(*answer, answer->handle);
      return false;
    case Task::Kind::free_slab:
      if (const auto* answer = std::get_if<wire::SlabFreed>(&message)) return take(*answer, {});
      return false;
  }
  return false;
}

void HelperLink::finish(const std::optional<Failure>& failure, const IpcHandle& handle) {
  fds_.clear();
  timer_.reset();
  const Task task = std::move(queue_.front());
  queue_.pop_front();
  phase_ = Phase::none;
  tell(task, failure, handle);
  next();
}

// Each may ask for more.
void HelperLink::tell(const Task& task, const std::optional<Failure>& failure, const IpcHandle& handle) {
  const ChunkId id = task.pieces.front().id;
  switch (task.kind) {
    case Task::Kind::scrub_chunks:
    case Task::Kind::scrub_slabs:
      answers_.scrubbed(ids_of(task.pieces), failure);
      break;
    case Task::Kind::make_slab:
      if (!failure) slabs_.insert(id);
      answers_.slab_made(
          id, failure ? Result<IpcHandle>(Error{failure->code, failure->why}) : Result<IpcHandle>(handle));
      break;
    case Task::Kind::free_slab:
      if (!failure) slabs_.erase(id);
      answers_.slab_freed(id, failure ? Status(Error{failure->code, failure->why}) : Status(Done{}));
      break;
  }
}

// Each of them would wait for one more that cannot be had.
void HelperLink::no_helper(const std::string& why, Errc code) {
  fds_.clear();
  timer_.reset();
  const std::deque<Task> waiting = std::exchange(queue_, {});
  phase_ = Phase::none;
  for (const Task& task : waiting)
    tell(task, Failure{How::untried, why, code}, {});
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
  const pid_t pid = pid_;
  ::kill(pid, SIGKILL);
  killed_.insert(pid);
  leave();
  lost(pid, why);
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
  if (phase_ == Phase::sent && never_began(status))
    return no_helper("the helper ended: " + how, Errc::driver);
  lost(pid, how);
}

// F52: the helper of now is none any more. All slabs that it had are lost, and what it may just have made;
// whatever else was wanted of these has no meaning now. Chunks that it was given it may have yet, and its GPU
// work on them may not be over.
void HelperLink::lost(pid_t pid, const std::string& how) {
  const bool given = phase_ == Phase::sending || phase_ == Phase::sent;
  const bool overwriting = given && queue_.front().kind == Task::Kind::scrub_chunks;
  std::set<ChunkId> slabs = std::exchange(slabs_, {});
  if (given && !overwriting) {
    // One that never heard of it has made nothing: the next one is asked.
    if (phase_ == Phase::sent || queue_.front().kind != Task::Kind::make_slab) {
      slabs.insert(queue_.front().pieces.front().id);
      queue_.pop_front();
    }
    timer_.reset();
    phase_ = Phase::none;
  }
  for (Task& task : queue_)
    std::erase_if(task.pieces, [&](const Piece& piece) { return slabs.contains(piece.id); });
  std::erase_if(queue_, [](const Task& task) { return task.pieces.empty(); });
  if (!slabs.empty()) answers_.slabs_lost({slabs.begin(), slabs.end()}, how, pid);  // may ask for more
  if (!overwriting) return next();
  finish(Failure{phase_ == Phase::sent ? How::lost : How::untried, "the helper died (" + how + ")"});
}

}  // namespace apportion
