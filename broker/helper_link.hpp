// The broker's end of the helper: started when there is something to overwrite, ended when there was nothing
// for a while (its context costs memory that the load rule has put aside, and somebody may watch it).
//
// Promises: one request is in flight at a time, of at most kMostChunks chunks (their descriptors are open
// here only then); each is answered once: all overwritten, or why not. A helper that dies, or is silent for
// long (F45's like), fails what it was doing and nothing else; the next request starts a new one. Never:
// blocks; tries again by itself (the core counts the tries).
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "broker/actions.hpp"
#include "broker/server_loop.hpp"
#include "broker/watch.hpp"
#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

class HelperLink {
 public:
  using Piece = actions::ScrubChunks::Piece;
  // One fd each, in order; all or none.
  using Fds = std::function<void(Result<std::vector<Fd>>)>;
  using Export = std::function<void(std::vector<ChunkId>, Fds)>;
  using Answer = std::function<void(const std::vector<ChunkId>&, const Status&)>;

  static constexpr std::size_t kMostChunks = 64;
  static constexpr std::chrono::seconds kIdle{5};
  // A context on a large machine without persistence mode takes several seconds.
  static constexpr std::chrono::seconds kPatience{60};

  // `argv`: how a helper is started; kHelperFlag and the socket's number are added. `answer` is called for
  // every part of what scrub() was given.
  HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answer answer);
  ~HelperLink();  // the helper ends: its socket does

  void scrub(const std::vector<Piece>& chunks);
  [[nodiscard]] pid_t pid() const { return pid_; }  // 0: none

 private:
  [[nodiscard]] Status start();
  void next();
  void send();
  void read();
  void finish(const Status& status);
  void leave();  // the helper ends by itself: its socket does
  void kill(const std::string& why);
  void reaped(pid_t pid);

  Loop& loop_;
  std::vector<std::string> argv_;
  Export export_;
  Answer answer_;
  std::deque<std::vector<Piece>> queue_;
  bool busy_ = false;       // the front of queue_ is being exported, sent or overwritten
  bool at_helper_ = false;  // it is given to the helper of now
  std::vector<Fd> fds_;     // of the front, until it is sent
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
