// The broker's end of the helper: started when there is something to overwrite, ended when there was nothing
// for a while (its context costs memory that the load rule has put aside, and somebody may watch it).
//
// Promises: one request is in flight at a time, of at most kMostChunks chunks (their descriptors are open
// here only then); each is answered once: all overwritten, or why not, and whether somebody may still have
// them. A helper that dies, talks nonsense or is silent for long (F45's like) is given up at once, also where
// the kernel cannot end it: what it was given is lost with it, and the next request starts a new one. Where
// no helper is to be had, all who wait are told. Never: blocks; tries again by itself (the core counts the
// tries).
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
#include "shm/result.hpp"

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
  };
  // Nothing: all of them are overwritten.
  using Answer = std::function<void(const std::vector<ChunkId>&, const std::optional<Failure>&)>;

  static constexpr std::size_t kMostChunks = 64;
  static constexpr std::size_t kMostKilled = 4;  // that the kernel has not ended: each has its context yet

  // `argv`: how a helper is started; kHelperFlag with the socket's number and kHelperBrokerFlag are added.
  // `answer` is called for every part of what scrub() was given.
  HelperLink(Loop& loop, std::vector<std::string> argv, Export exporter, Answer answer,
             HelperSetup setup = {});
  ~HelperLink();  // the helper ends: its socket does

  void scrub(const std::vector<Piece>& chunks);
  [[nodiscard]] pid_t pid() const { return pid_; }  // 0: none

 private:
  using How = events::ScrubFailed::How;
  // Where the front of queue_ is. Only what was sent can be lost.
  enum class Phase : std::uint8_t { none, exporting, sending, sent };

  [[nodiscard]] Status start();
  void next();
  void send();
  void read();
  void finish(const std::optional<Failure>& failure);
  void no_helper(const std::string& why);  // all who wait are told
  void leave();                            // the helper ends by itself: its socket does
  void give_up(const std::string& why);    // it does not
  void without_it(const std::string& why);
  void reaped(pid_t pid);

  Loop& loop_;
  std::vector<std::string> argv_;
  Export export_;
  Answer answer_;
  HelperSetup setup_;
  std::deque<std::vector<Piece>> queue_;
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
