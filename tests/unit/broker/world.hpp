// A world around the core: clients, a driver, a keeper and a device, all of them plain data, moved one step
// at a time by a test. It knows the truth that the broker can only infer: who really has which chunk, and
// which bytes the device really holds.
//
// Promises: check() compares the core with that truth, by means that share no code with the book; with
// watch_journal every single store of the journal is compared too, as a crash at that store would leave it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "broker/book.hpp"
#include "broker/core.hpp"
#include "broker/journal.hpp"
#include "broker/journal_image.hpp"

namespace apportion::testing {

// Where a client may stand; several clients may come and go at one place.
struct Place {
  std::string job;
  std::uint32_t uid = 1000;
  bool reclaimable = false;
};

struct Grant {
  RequestId request;
  std::vector<ChunkId> ids;
};

struct Client {
  SessionId session;  // names nothing: nobody stands here
  bool connected = false;
  Token token;
  std::int32_t pid = 0;
  std::set<ChunkId> has;      // mapped or open, or on the way in the socket
  std::set<ChunkId> lost;     // slabs whose maker died: open still, and no lease any more
  std::deque<Grant> unacked;  // received, not acknowledged
  [[nodiscard]] bool request_pending() const { return pending.value != 0; }
  RequestId pending{};  // 0: no request is unanswered
  Bytes reclaim{};      // 0: nothing was asked back
  RequestId reclaim_id{};
  bool late = false;  // it has not answered for a while
};

struct Step {
  enum class Kind {
    attach,
    request,        // min, want in chunks
    request_exact,  // min in granules
    ack,
    nack,
    unsent,  // the shell could not send the newest grant
    release_one,
    release_all,
    give_back,       // what RECLAIM asked for, as far as it has that
    give_back_none,  // it has nothing to spare
    detach,
    hang_up,
    resume,
    die,
    memory_back,   // the device lets go of what the dead of this place held
    driver_works,  // the oldest driver call succeeds
    driver_fails,
    helper_works,  // overwrites what it was asked for first; refuses where one of that is `unwritable`
    helper_fails,  // refuses
    helper_dies,   // and its slabs with it; over chunks: its GPU work may not be over
    helper_absent,
    helper_memory_back,  // the device has let go of what helpers died over
    close_lost,          // a holder closes what it has heard to be lost
    keeper_works,
    read_device,
    tick,
  } kind;
  std::size_t place = 0;
  std::uint64_t min = 0;
  std::uint64_t want = 0;
};
std::string to_text(const Step& step);

class World {
 public:
  World(CoreSetup setup, std::vector<Place> places, bool watch_journal = true);

  // Fills the pool and does all outstanding work.
  void start();
  void apply(const Step& step);
  // Driver, helper and keeper work until nothing is outstanding.
  void work();
  void check() const;

  // Every step that can be taken now. sizes: requests in chunks that clients make.
  [[nodiscard]] std::vector<Step> steps(const std::vector<std::uint64_t>& sizes, bool failures) const;
  // Equal for worlds that go on in the same way, names aside.
  [[nodiscard]] std::string fingerprint() const;

  // Shorthands for tests that tell a story.
  SessionId attach(std::size_t place);
  std::vector<ChunkId> take(std::size_t place, std::uint64_t chunks);  // request, work, ack; empty: refused
  [[nodiscard]] Bytes used(std::size_t place) const;                   // charged to the place's job
  [[nodiscard]] JobIndex job_of(std::size_t place) const;
  // The client let go of a chunk without telling anybody.
  void let_go(std::size_t place, ChunkId id) { clients_[place].has.erase(id); }
  [[nodiscard]] bool any_request_pending() const;
  [[nodiscard]] std::size_t places() const { return places_.size(); }
  [[nodiscard]] const Client& client(std::size_t place) const { return clients_[place]; }
  [[nodiscard]] std::vector<Refusal> take_refusals() { return std::exchange(refusals_, {}); }
  template <typename T>
  [[nodiscard]] std::vector<T> take_actions() {
    std::vector<T> found;
    for (const Action& action : seen_) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    seen_.clear();
    return found;
  }
  [[nodiscard]] std::vector<Action> take_all() { return std::exchange(seen_, {}); }
  Core& core() { return *core_; }
  [[nodiscard]] const Core& core() const { return *core_; }
  Journal& journal() { return *journal_; }
  [[nodiscard]] Bytes physical() const;  // bytes the device holds for the broker or anybody it gave chunks to
  void feed(const Event& event);         // as the shell would, and carries the actions out
  std::int64_t now = 1'000'000'000;
  bool checking = true;      // off while a path that was checked before is walked again
  bool device_full = false;  // the driver answers out of memory
  // The helper overwrites within the event that asks for it, for stories that are about something else.
  bool instant_helper = true;
  bool helper_broken = false;      // work() lets it fail
  std::set<ChunkId> unwritable;    // the driver refuses to overwrite these
  void spoil(std::uint64_t dice);  // one that there is becomes the only such one

 private:
  void run(const Actions& actions);
  void carry_out(const Action& action);
  void hand_over(const actions::SendGrant& grant);
  [[nodiscard]] std::size_t place_of(SessionId session) const;  // size() where nobody is it
  static void at_store(void* context);
  void check_journal() const;
  void check_truth() const;
  void check_passing_on(ChunkId id, Owner to) const;
  using How = events::ScrubFailed::How;
  void scrub(const actions::ScrubChunks& scrub, std::optional<How> fails);
  void help(std::optional<How> fails);  // the helper does what it was asked for first
  void helper_dies();
  void check_loosening(ChunkId id);  // its bytes are about to become loose
  void note_loosened(ChunkId id);    // they have
  void read_device();
  [[nodiscard]] const JobRule& rule(const Owner& owner) const { return setup_.jobs[owner.job.value]; }

  CoreSetup setup_;
  std::vector<Place> places_;
  std::vector<std::byte> memory_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Core> core_;
  std::vector<Client> clients_;
  std::vector<std::set<ChunkId>> dead_hold_;       // by place: what the device has not let go of
  std::vector<std::set<std::int32_t>> dead_pids_;  // by place: processes that the device names as long
  std::set<ChunkId> dead_helpers_hold_;            // and may write to
  std::deque<Action> driver_;                      // MakeChunk and UnmakeChunk, oldest first
  std::deque<Action> keeper_;
  std::deque<Action> helper_;      // ScrubChunks, MakeSlab and FreeSlab
  std::set<ChunkId> slabs_;        // that the helper has
  std::map<ChunkId, Bytes> size_;  // of every chunk ever made
  std::set<ChunkId> handles_;      // open in the broker
  std::set<ChunkId> kept_;         // fds in the keeper
  // What a chunk really holds, and who may have kept an fd of it.
  struct Truth {
    enum class Bytes : std::uint8_t { unknown, zeros, owners } bytes = Bytes::unknown;
    Owner owner{};                // of the bytes
    std::set<std::uint32_t> fds;  // uids of jobs that are not trusted
    bool strict = false;          // somebody had it who returns strictly: nobody may get it again
    bool died = false;            // with whoever had it
  };
  std::map<ChunkId, Truth> truth_;
  std::map<ChunkId, Truth> before_grant_;  // of the last grant it was in
  std::set<Owner> loosened_;  // whose bytes went to the device as they were: in any chunk it makes
  std::vector<Refusal> refusals_;
  std::vector<Action> seen_;
  std::uint64_t next_request_ = 1;
  std::uint8_t next_token_ = 1;
  std::int32_t next_pid_ = 100;
};

// A pool of `chunks` chunks of 32 MiB, cut down to 16 MiB, and jobs of whole chunks.
struct JobSpec {
  std::string name;
  std::uint64_t guarantee;
  std::uint64_t limit;
  std::int32_t priority = 0;
  Hold hold = Hold::attached;
  bool lend = true;
};
inline constexpr Bytes kTestChunk = 32_MiB;
inline constexpr Bytes kTestDevice = 1_GiB;
[[nodiscard]] CoreSetup small_setup(std::uint64_t chunks, const std::vector<JobSpec>& jobs,
                                    Reserve reserve = Reserve::all);

}  // namespace apportion::testing
