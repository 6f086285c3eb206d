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

HelperLink::HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answers answers)
    : loop_(loop), argv_(std::move(argv)), export_(std::move(exporter)), answers_(std::move(answers)) {}

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
  if (busy_) return;
  timer_.reset();
  if (queue_.empty()) {
    // Its context is memory that somebody may watch; it is cheap to start another. With slabs out it stays.
    if (pid_ != 0 && slabs_.empty()) timer_ = loop_.after(kIdle, [this] { leave(); });
    return;
  }
  busy_ = true;
  if (queue_.front().kind != Task::Kind::scrub_chunks) return go();
  export_(ids_of(queue_.front().pieces), [this, alive = std::weak_ptr(alive_)](Result<std::vector<Fd>> fds) {
    if (alive.expired()) return;
    if (!fds.ok()) return finish(fds.error());
    fds_ = *std::move(fds);
    go();
  });
}

void HelperLink::go() {
  if (pid_ == 0)
    if (Status started = start(); !started.ok()) return finish(started);
  send();
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
  at_helper_ = true;
  ++request_;
  std::vector<int> fds;
  for (const Fd& fd : fds_)
    fds.push_back(fd.get());
  const wire::Message message = request_of(queue_.front());
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
  if (message.ok() && busy_ && wire::header_of(*message).request_id == request_ && take_answer(*message))
    return;
  readable_.reset();
  // One that hung up is about to end; one that talks nonsense is made to.
  if (got.ok()) kill("it answered nonsense");
}

// False: not the answer to what was asked.
bool HelperLink::take_answer(const wire::Message& message) {
  const auto take = [this](const auto& answer, const IpcHandle& handle) {
    if (answer.code == 0) {
      finish(Done{}, handle);
      return true;
    }
    // It ends where its context is broken, and one without a context is no use: the next try has a new one.
    // With slabs out it has to be kept, and says by its end that it cannot go on.
    if (slabs_.empty()) leave();
    finish(Error{static_cast<Errc>(answer.code - 1), "the helper: " + std::string(answer.text.view())});
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

void HelperLink::finish(const Status& status, const IpcHandle& handle) {
  fds_.clear();
  timer_.reset();
  at_helper_ = false;
  const Task task = std::move(queue_.front());
  queue_.pop_front();
  busy_ = false;
  const ChunkId id = task.pieces.front().id;
  // Each may ask for more.
  switch (task.kind) {
    case Task::Kind::scrub_chunks:
    case Task::Kind::scrub_slabs:
      answers_.scrubbed(ids_of(task.pieces), status);
      break;
    case Task::Kind::make_slab:
      if (status.ok()) slabs_.insert(id);
      answers_.slab_made(id, status.ok() ? Result<IpcHandle>(handle) : Result<IpcHandle>(status.error()));
      break;
    case Task::Kind::free_slab:
      if (status.ok()) slabs_.erase(id);
      answers_.slab_freed(id, status);
      break;
  }
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
  const bool overwriting = at_helper_ && queue_.front().kind == Task::Kind::scrub_chunks;
  lose_slabs(pid, how);  // may start the next one, where it was not overwriting chunks
  // F52: what it was overwriting is as unknown as before.
  if (overwriting) finish(Error{Errc::disconnected, "the helper died (" + how + ")"});
}

// F52: all that it had, and what it may just have made. Whatever else was wanted of these has no meaning now.
void HelperLink::lose_slabs(pid_t pid, const std::string& how) {
  std::set<ChunkId> lost = std::exchange(slabs_, {});
  if (at_helper_ && queue_.front().kind != Task::Kind::scrub_chunks) {
    lost.insert(queue_.front().pieces.front().id);
    queue_.pop_front();
    fds_.clear();
    timer_.reset();
    at_helper_ = false;
    busy_ = false;
  }
  for (Task& task : queue_)
    std::erase_if(task.pieces, [&](const Piece& piece) { return lost.contains(piece.id); });
  std::erase_if(queue_, [](const Task& task) { return task.pieces.empty(); });
  if (!lost.empty()) answers_.slabs_lost({lost.begin(), lost.end()}, how, pid);  // may ask for more
  next();
}

}  // namespace apportion
