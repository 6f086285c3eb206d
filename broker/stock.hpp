// Turns loose bytes into chunks and back, so that what was admitted can be granted: the pool's own
// bookkeeping.
//
//   make:    MAKING -> driver -> keeper has the fd -> FREE          (or back to loose, F32)
//   unmake:  UNMAKING -> keeper dropped the fd -> driver -> loose   (or ZOMBIE, F34)
//   retire:  ZOMBIE -> keeper dropped the fd -> driver -> the graveyard waits for the device -> loose
//
// An admitted request becomes an order. Orders are served first come, first served: from free chunks of the
// same owner, from free chunks that had none, from loose bytes; and where those are short, free chunks of
// others are unmade. (Until scrubbing is built, no chunk passes from one owner to another as it is.)
//
// Promises: an order ends as ready or failed; what is promised to orders is never given twice. Never: admits
// (policy does), waits, or calls the driver.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "broker/actions.hpp"
#include "broker/book.hpp"
#include "broker/events.hpp"
#include "broker/graveyard.hpp"
#include "broker/setup.hpp"

namespace apportion {

class Stock {
 public:
  struct Order {
    SessionId session;
    RequestId request;
    Owner owner;
    Bytes asked{};                  // what the client asked for at least, for the refusal
    Bytes piece{};                  // size of each chunk
    std::uint64_t missing = 0;      // pieces neither there nor being made
    std::vector<ChunkId> making{};  // for this order
    std::vector<ChunkId> ready{};   // OFFERED to its session, not sent
    std::string failure{};

    [[nodiscard]] Bytes promised() const { return piece * (missing + making.size()); }
  };

  Stock(Book& book, const CoreSetup& setup);

  // The first filling of the pool.
  void start(SteadyNs now, Actions& out);
  [[nodiscard]] bool filled() const { return filled_; }

  void order(Order order);
  void cancel(SessionId session);  // its orders are rolled back

  // RETURNING -> UNMAKING -> loose. Charged until it is loose.
  void discard(ChunkId id);
  // A ZOMBIE: closed, then given to the graveyard.
  void retire(ChunkId id);
  // OFFERED, never sent -> FREE as it was (or loose where such chunks are not kept).
  void roll_back(ChunkId id);
  // Whether a returned chunk of this size may stay a chunk.
  [[nodiscard]] bool keeps(Bytes bytes) const;

  // Results of what was asked for. An id that is not being worked on is ignored.
  void handle(const events::ChunkMade& event, Actions& out);
  void handle(const events::MakeFailed& event, Actions& out);
  void handle(const events::ChunkUnmade& event, Actions& out);
  void handle(const events::UnmakeFailed& event, Actions& out);
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
  [[nodiscard]] bool awaits_device() const { return !graveyard_.empty(); }
  [[nodiscard]] bool wants_tick() const { return awaits_device() || retry_at_.value != 0; }

 private:
  // Where a chunk that is being worked on stands.
  enum class Step : std::uint8_t { making, putting, deleting, closing };

  void begin_make(Bytes bytes, Order* order, Actions& out);
  void begin_unmake_free(ChunkId id);
  void close(ChunkId id);
  [[nodiscard]] bool step_is(ChunkId id, Step step) const;
  [[nodiscard]] Order* order_of(ChunkId making);
  void fail(Order& order, std::string why);
  void serve_from_free();
  void serve_from_loose(Actions& out);
  void unmake_for_orders(Actions& out);
  void refill(Actions& out);
  void finish_orders();
  [[nodiscard]] Bytes refill_coming() const;

  Book& book_;
  const CoreSetup& setup_;
  Graveyard graveyard_;
  std::deque<Order> orders_;
  std::vector<Order> ready_;
  std::vector<Order> failed_;
  std::unordered_map<ChunkId, Step> steps_;
  std::vector<ChunkId> to_delete_;  // for one KeeperDel
  bool filled_ = false;
  bool fatal_ = false;
  SteadyNs fill_until_;
  SteadyNs retry_at_;  // 0: nothing to retry
  std::int64_t backoff_ns_ = 0;
};

}  // namespace apportion
