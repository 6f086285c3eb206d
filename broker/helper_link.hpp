// The broker's end of the helper: started when there is something for it to do, ended when there was nothing
// for a while and no slab is out (its context costs memory that the load rule has put aside, and somebody may
// watch it).
//
// Owns: the knowledge of which slabs the helper of now has. Promises: one request is in flight at a time, of
// at most kMostChunks chunks (their descriptors are open here only then); each is answered once. A helper
// that dies, or is silent for long (F45's like), fails the scrub it was doing; all slabs that it had, or may
// have had, are answered as lost, once, and by nothing else (F52). The next request starts a new one. Never:
// blocks; tries again by itself (the core counts the tries); ends a helper that has slabs.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "broker/actions.hpp"
#include "broker/server_loop.hpp"
#include "broker/watch.hpp"
#include "shm/fd.hpp"
#include "shm/ipc_handle.hpp"
#include "shm/result.hpp"
#include "shm/wire.hpp"

namespace apportion {

class HelperLink {
 public:
  using Piece = actions::ScrubChunks::Piece;
  // One fd each, in order; all or none.
  using Fds = std::function<void(Result<std::vector<Fd>>)>;
  using Export = std::function<void(std::vector<ChunkId>, Fds)>;

  // What comes of what was asked for; called on the strand, and may ask for more.
  struct Answers {
    // For every part of what scrub() was given.
    std::function<void(const std::vector<ChunkId>&, const Status&)> scrubbed;
    std::function<void(ChunkId, const Result<IpcHandle>&)> slab_made;
    std::function<void(ChunkId, const Status&)> slab_freed;
    // With the process that had them; `pid` may be named by the device for a while yet.
    std::function<void(const std::vector<ChunkId>&, const std::string& why, pid_t pid)> slabs_lost;
  };

  static constexpr std::size_t kMostChunks = 64;
  static constexpr std::chrono::seconds kIdle{5};
  // A context on a large machine without persistence mode takes several seconds.
  static constexpr std::chrono::seconds kPatience{60};

  // `argv`: how a helper is started; kHelperFlag and the socket's number are added.
  HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answers answers);
  ~HelperLink();  // the helper ends: its socket does

  void scrub(const std::vector<Piece>& pieces);
  void make_slab(ChunkId id, Bytes bytes);
  void free_slab(ChunkId id);
  [[nodiscard]] pid_t pid() const { return pid_; }  // 0: none

 private:
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
  void finish(const Status& status, const IpcHandle& handle = {});
  void leave();  // the helper ends by itself: its socket does
  void kill(const std::string& why);
  void reaped(pid_t pid);
  void lose_slabs(pid_t pid, const std::string& how);

  Loop& loop_;
  std::vector<std::string> argv_;
  Export export_;
  Answers answers_;
  std::deque<Task> queue_;
  std::set<ChunkId> slabs_;  // that the helper of now has
  bool busy_ = false;        // the front of queue_ is being exported, sent or worked on
  bool at_helper_ = false;   // it is given to the helper of now
  std::vector<Fd> fds_;      // of the front, until it is sent
  std::uint64_t request_ = 0;
  pid_t pid_ = 0;
  std::string killed_for_;
  Fd channel_;
  std::unique_ptr<Loop::Watch> readable_;
  std::unique_ptr<Loop::Watch> timer_;                          // room in the socket, then patience; idleness
  std::map<pid_t, std::unique_ptr<ProcessWatch>> processes_;    // every one that is not reaped
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // an export may answer late
};

}  // namespace apportion
