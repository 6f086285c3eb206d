// Turns loose bytes into chunks and back, so that what was admitted can be granted: the pool's own
// bookkeeping.
//
//   make:    MAKING -> driver -> keeper has the fd -> FREE          (or back to loose, F32)
//   scrub:   SCRUB -> helper -> OFFERED, UNMAKING or FREE           (or as it was, F38; or retired, F52)
//   unmake:  UNMAKING -> keeper dropped the fd -> driver -> loose   (or ZOMBIE, F34)
//   retire:  ZOMBIE -> keeper dropped the fd -> driver -> the graveyard waits for the device -> loose
//
// A slab goes the same ways without the keeper, and the helper stands where the driver is. It is made for one
// order, is nobody's only in between, and is never kept. One of a dead holder is freed when the device no
// longer names that process (rules 35, 38). When the helper dies, its slabs are ZOMBIE at once (F52).
//
// An admitted request becomes an order. Orders are served first come, first served: from free chunks (the
// owner's own, then clean ones, then such as must be overwritten first: hygiene.hpp), from loose bytes, which
// are made into chunks and overwritten; and where those are short, free chunks that its owner may not have
// are unmade. When nothing has been asked or returned for a second, free chunks are overwritten ahead, a
// batch at a time; never before the first order that needed it, since the helper's context costs memory. An
// order that loses chunks on the way, to a helper that died or because they cannot be overwritten, gets
// others; after three such mishaps, or where there are no others, it fails with what happened.
//
// Promises: an order ends as ready or failed; what is promised to orders is never given twice. Never: admits
// (policy does), waits, or calls the driver.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "broker/actions.hpp"
#include "broker/book.hpp"
#include "broker/events.hpp"
#include "broker/graveyard.hpp"
#include "broker/hygiene.hpp"
#include "broker/setup.hpp"

namespace apportion {

class Stock {
 public:
  struct Order {
    SessionId session;
    RequestId request;
    Owner owner;
    Bytes asked{};                     // what the client asked for at least, for the refusal
    Bytes piece{};                     // size of each chunk
    std::uint64_t missing = 0;         // pieces neither there nor being made
    std::vector<ChunkId> making{};     // for this order
    std::vector<ChunkId> scrubbing{};  // for this order, and charged to it
    std::vector<ChunkId> ready{};      // OFFERED to its session, not sent
    std::uint32_t mishaps = 0;         // helpers that died over its chunks, chunks that were set aside
    std::string mishap{};              // the latest
    std::string failure{};
    Refusal::Rule failed_by = Refusal::Rule::device_full;
    bool slab = false;

    [[nodiscard]] Bytes promised() const { return piece * (missing + making.size()); }
  };

  Stock(Book& book, const CoreSetup& setup);

  // The first filling of the pool.
  void start(SteadyNs now, Actions& out);
  [[nodiscard]] bool filled() const { return filled_; }

  void order(Order order);
  void cancel(SessionId session);  // its orders are rolled back

  // RETURNING -> (SCRUB) -> UNMAKING -> loose. Charged until it is loose.
  void discard(ChunkId id);
  // RETURNING -> FREE, or discarded where the job or the chunk is not of that kind.
  void put_back(ChunkId id);
  // A ZOMBIE whose holder, process `pid`, is gone since `now`: closed, then given to the graveyard.
  void retire(ChunkId id, std::int32_t pid, SteadyNs now);
  // OFFERED, never sent -> FREE as it was (or loose where such chunks are not kept).
  void roll_back(ChunkId id);
  // Somebody asked or returned: the idle time that scrubbing ahead waits for begins anew.
  void disturb();
  // Its return waits for a scrub that has failed several times, and is tried again at leisure.
  [[nodiscard]] bool stuck(ChunkId id) const;

  // Results of what was asked for. An id that is not being worked on is ignored.
  void handle(const events::ChunkMade& event, Actions& out);
  void handle(const events::MakeFailed& event, Actions& out);
  void handle(const events::ChunkUnmade& event, Actions& out);
  void handle(const events::UnmakeFailed& event, Actions& out);
  void handle(const events::Scrubbed& event, Actions& out);
  void handle(const events::ScrubFailed& event, Actions& out);
  void handle(const events::SlabsLost& event, Actions& out);
  void handle(const events::KeeperAcked& event, Actions& out);
  void handle(const events::DeviceRoom& event, Actions& out);
  void tick(SteadyNs now);

  // Does all that can be done now: offers, makes, unmakes, refills. After every event.
  void pump(Actions& out);
  [[nodiscard]] std::vector<Order> take_ready();
  [[nodiscard]] std::vector<Order> take_failed();

  // What orders still wait for, as if charged (docs/quotas.md).
  [[nodiscard]] Bytes promised() const;
  [[nodiscard]] Bytes promised(JobIndex job) const;
  // What is being overwritten for orders of the job, and charged to it.
  [[nodiscard]] Bytes scrubbing_for(JobIndex job) const;
  [[nodiscard]] bool awaits_device() const { return !graveyard_.empty() || !unfreed_.empty(); }
  [[nodiscard]] bool wants_tick() const {
    return awaits_device() || !lost_.empty() || retry_at_.value != 0 || !scrub_again_.empty() ||
           (wants_ahead() && !ahead_due_);
  }

 private:
  // Where a chunk that is being worked on stands.
  enum class Step : std::uint8_t { making, putting, scrubbing, deleting, closing };
  // A chunk that is being overwritten.
  struct Overwriting {
    enum class For : std::uint8_t { grant, loosening, later } what_for = For::later;
    std::uint32_t failures = 0;  // of its own: what fails for several at once is nobody's
    bool alone = false;          // it may be what others would fail for
  };
  struct At {
    ChunkId id;
    SteadyNs at;
  };
  // A ZOMBIE slab that the helper still has: freed when a reading from after `at` does not name `pid`.
  struct Unfreed {
    ChunkId id;
    std::int32_t pid = 0;  // 0: nobody's; freeing failed
    SteadyNs at;
  };

  void begin_make(Bytes bytes, Order* order, Actions& out);
  void close(ChunkId id);
  [[nodiscard]] bool step_is(ChunkId id, Step step) const;
  // Whether a chunk may stay one when nobody has it.
  [[nodiscard]] bool keeps(const BookedChunk& chunk) const;
  [[nodiscard]] Order* order_of(ChunkId id);  // being made or overwritten
  static void fail(Order& order, std::string why, Refusal::Rule rule = Refusal::Rule::device_full);
  void give(Order& order, ChunkId id);  // a free chunk it may have, overwritten first where it must be
  [[nodiscard]] std::optional<ChunkId> pick_for(const Order& order) const;
  [[nodiscard]] std::optional<ChunkId> pick_to_unmake() const;

  // stock_scrub.cpp
  void begin_scrub(ChunkId id, Overwriting::For what_for, bool alone);
  void ask_again(ChunkId id);
  void let_go(Order& order);  // what it has goes back
  bool withdraw(ChunkId id);  // true: no helper has been asked for it yet
  Overwriting end_overwriting(ChunkId id);
  void set_aside(ChunkId id, const std::string& why);
  void give_up(ChunkId id, const std::string& why);
  void lose(const std::vector<ChunkId>& ids, const events::ScrubFailed& event, Actions& out);
  static void mishap(Order& order, const std::string& text);
  void is_made(ChunkId id);
  void lose_slab(ChunkId id, const std::string& why, SteadyNs now);
  void free_unnamed(const events::DeviceRoom& event);
  [[nodiscard]] Bytes slabs_of_the_dead_at_helper() const;
  void scrub_ahead();
  void stop_ahead();
  void ask_helper(Actions& out);
  [[nodiscard]] bool wants_ahead() const;
  [[nodiscard]] std::optional<ChunkId> pick_for_later() const;
  [[nodiscard]] Bytes scrub_coming() const;
  [[nodiscard]] Bytes lost_coming() const;
  void serve_from_free();
  void serve_from_loose(Actions& out);
  void unmake_for_orders(Actions& out);
  void refill(Actions& out);
  void finish_orders();
  [[nodiscard]] Bytes refill_coming() const;

  Book& book_;
  const CoreSetup& setup_;
  Hygiene hygiene_;
  Graveyard graveyard_;
  std::deque<Order> orders_;
  std::vector<Order> ready_;
  std::vector<Order> failed_;
  std::unordered_map<ChunkId, Step> steps_;
  std::unordered_map<ChunkId, Overwriting> overwriting_;  // of each that is scrubbing
  std::vector<ChunkId> to_delete_;                        // for one KeeperDel
  std::vector<ChunkId> to_scrub_;                         // for one ScrubChunks
  std::deque<ChunkId> alone_;                             // for one ScrubChunks each, one after the other
  ChunkId alone_now_;                                     // asked for, or failed and asked for again first
  std::vector<At> scrub_again_;
  std::vector<At> lost_;  // with a helper, and counted on: they come back when the device shows the room
  std::vector<ChunkId> to_free_;  // slabs
  std::vector<Unfreed> unfreed_;
  bool scrub_used_ = false;  // some order needed it
  bool disturbed_ = false;   // since the last tick
  bool ahead_due_ = false;
  bool ahead_off_ = false;  // it failed: not again before somebody asks
  SteadyNs quiet_since_;
  bool filled_ = false;
  bool fatal_ = false;
  SteadyNs fill_until_;
  SteadyNs retry_at_;  // 0: nothing to retry
  std::int64_t backoff_ns_ = 0;
};

}  // namespace apportion
