// The broker's end of the helper: started when there is something for it to do, ended when there was nothing
// for a while and no slab is out (its context costs memory that the load rule has put aside, and somebody may
// watch it).
//
// Owns: the knowledge of which slabs the helper of now has. Promises: one request is in flight at a time, of
// at most kMostChunks chunks (their descriptors are open here only then); each is answered once: done, or why
// not, and whether somebody may still have what it was about. A helper that dies, talks nonsense or is silent
// for long (F45's like) is given up at once, also where the kernel cannot end it: what it was given is lost
// with it, and so are all slabs that it had or may have had, each told once and by nothing else (F52). The
// next request starts a new one. Where no helper is to be had, all who wait are told. Never: blocks; tries
// again by itself (the core counts the tries); ends a helper that has slabs.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "broker/actions.hpp"
#include "broker/events.hpp"
#include "broker/server_loop.hpp"
#include "broker/watch.hpp"
#include "shm/fd.hpp"
#include "shm/ipc_handle.hpp"
#include "shm/result.hpp"
#include "shm/wire.hpp"

namespace apportion {

struct HelperSetup {
  std::string program = "/proc/self/exe";
  std::chrono::milliseconds idle{5'000};
  // A context on a large machine without persistence mode takes several seconds.
  std::chrono::milliseconds patience{60'000};
};

class HelperLink {
 public:
  using Piece = actions::ScrubChunks::Piece;
  // One fd each, in order; all or none.
  using Fds = std::function<void(Result<std::vector<Fd>>)>;
  using Export = std::function<void(std::vector<ChunkId>, Fds)>;
  struct Failure {
    events::ScrubFailed::How how;
    std::string why;
    Errc code = Errc::driver;
  };

  // What comes of what was asked for; called on the strand, and may ask for more.
  struct Answers {
    // For every part of what scrub() was given. Nothing: all of them are overwritten.
    std::function<void(const std::vector<ChunkId>&, const std::optional<Failure>&)> scrubbed;
    std::function<void(ChunkId, const Result<IpcHandle>&)> slab_made;
    std::function<void(ChunkId, const Status&)> slab_freed;
    // With the process that had them; `pid` may be named by the device for a while yet.
    std::function<void(const std::vector<ChunkId>&, const std::string& why, pid_t pid)> slabs_lost;
  };

  static constexpr std::size_t kMostChunks = 64;
  static constexpr std::size_t kMostKilled = 4;  // that the kernel has not ended: each has its context yet

  // `argv`: how a helper is started; kHelperFlag with the socket's number and kHelperBrokerFlag are added.
  HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answers answers,
             HelperSetup setup = {});
  ~HelperLink();  // the helper ends: its socket does

  void scrub(const std::vector<Piece>& pieces);
  void make_slab(ChunkId id, Bytes bytes);
  void free_slab(ChunkId id);
  [[nodiscard]] pid_t pid() const { return pid_; }  // 0: none

 private:
  using How = events::ScrubFailed::How;
  // Where the front of queue_ is. Only what was sent can be lost.
  enum class Phase : std::uint8_t { none, exporting, sending, sent };

  struct Task {
    enum class Kind : std::uint8_t { scrub_chunks, scrub_slabs, make_slab, free_slab } kind;
    std::vector<Piece> pieces;  // one for a slab made or freed
  };

  void push(Task task);
  [[nodiscard]] Status start();
  void next();
  void go();  // the front is ready to be sent
  void send();
  [[nodiscard]] wire::Message request_of(const Task& task) const;
  void read();
  [[nodiscard]] bool take_answer(const wire::Message& message);
  void finish(const std::optional<Failure>& failure, const IpcHandle& handle = {});
  void tell(const Task& task, const std::optional<Failure>& failure, const IpcHandle& handle);
  void no_helper(const std::string& why, Errc code);  // all who wait are told
  void leave();                                       // the helper ends by itself: its socket does
  void give_up(const std::string& why);               // it does not
  void lost(pid_t pid, const std::string& how);
  void reaped(pid_t pid);
  void lose_slabs(pid_t pid, const std::string& how);

  Loop& loop_;
  std::vector<std::string> argv_;
  Export export_;
  Answers answers_;
  HelperSetup setup_;
  std::deque<Task> queue_;
  std::set<ChunkId> slabs_;  // that the helper of now has
  Phase phase_ = Phase::none;
  std::vector<Fd> fds_;  // of the front, until it is sent
  std::chrono::steady_clock::time_point send_until_;
  std::uint64_t request_ = 0;
  pid_t pid_ = 0;
  Fd channel_;
  std::unique_ptr<Loop::Watch> readable_;
  std::unique_ptr<Loop::Watch> timer_;                          // room in the socket, then patience; idleness
  std::map<pid_t, std::unique_ptr<ProcessWatch>> processes_;    // every one that is not reaped
  std::set<pid_t> killed_;                                      // of these
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // an export may answer late
};

}  // namespace apportion
