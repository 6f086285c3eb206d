// The session with the broker: one socket, one request at a time, every answer with a deadline.
//
// Promises: one reader at a time; an answer that came too late is given back (NACK), so that nothing leaks; a
// GRANT of an older epoch is closed and dropped (F54). A descriptor that is not wanted is closed. After the
// connection is lost, every call says why. Between exchanges the socket can be on somebody's watch, who then
// reads what comes unasked; an exchange takes it off, so that its answers wake nobody else. Never: maps
// anything, calls the driver, reconnects. Thread-safe: calls wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shm/channel.hpp"
#include "shm/fd.hpp"
#include "shm/result.hpp"
#include "shm/wire.hpp"

namespace apportion {

class BrokerLink {
 public:
  struct Options {
    std::string job;     // empty: jobs.default
    std::string label;   // for people; cut at 63 bytes
    std::string socket;  // a path, or a folder that holds broker.sock; empty: the default places
    bool reclaimable = false;
    // For an answer, beyond the time that the broker itself may take by its config.
    std::chrono::milliseconds answer_time{5000};
  };

  // Connects and says HELLO. Errors: not_found or denied with every path tried and the command that starts a
  // broker; invalid (a job name that is too long); what the broker refused with; protocol; timed_out.
  [[nodiscard]] static Result<std::unique_ptr<BrokerLink>> open(const Options& options);
  // The same over a socket that is connected already.
  [[nodiscard]] static Result<std::unique_ptr<BrokerLink>> open(Fd socket, std::string path,
                                                                const Options& options);

  // What WELCOME said, and its pages: ledger, job page, report page. The fds are there until taken.
  [[nodiscard]] const wire::Welcome& welcome() const { return welcome_; }
  [[nodiscard]] std::vector<Fd> take_pages() { return std::move(pages_); }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Takes the chunks of one GRANT message: maps them, or leaves nothing. `done` counts the bytes of earlier
  // parts.
  using TakePart =
      std::function<Status(Bytes done, std::span<const wire::ChunkEntry> entries, std::vector<Fd> fds)>;
  struct Granted {
    Bytes taken;                 // by parts that were taken, and acknowledged
    std::optional<Error> error;  // of the first part that was not; the rest is given back
  };
  // Asks for memory and waits for all of the answer: as long as the job's `wait`, and some seconds. Errors:
  // the broker's refusal with its text; timed_out; disconnected; system where descriptors were lost (F26,
  // K5).
  [[nodiscard]] Result<Granted> request(Bytes min, Bytes want, std::uint32_t flags, const TakePart& take);
  // In a session whose memory comes as slabs: one of exactly `bytes`, which `take` opens, or leaves nothing.
  // Errors as request()'s, and take's.
  using TakeSlab = std::function<Status(const wire::SlabPlace& slab)>;
  // ahead: of need, see wire::Request::kAhead.
  [[nodiscard]] Status request_slab(Bytes bytes, bool ahead, const TakeSlab& take);
  // These are unmapped or closed here. Waits for the broker to have booked them.
  [[nodiscard]] Status release(std::span<const std::uint64_t> ids);
  // Ends the session and closes the socket.
  [[nodiscard]] Status detach();

  // From here on the socket is on this epoll descriptor's watch whenever no exchange is on; -1: no more.
  // Error system.
  [[nodiscard]] Status watch(int epoll);
  // Reads what has come unasked: recalls, late grants, the end of the connection. Waits for an exchange.
  void read_unasked();

  // Closes the socket without a word: what is held stays charged until this process is gone.
  void hang_up();

  // What the broker asked back, the oldest first; each is answered with settle(), once. Waits for nobody.
  struct Recall {
    std::uint64_t request_id = 0;
    Bytes bytes;
  };
  [[nodiscard]] std::optional<Recall> take_recall();
  [[nodiscard]] bool recalled() const { return recalls_waiting_.load(std::memory_order_relaxed) != 0; }
  // What it asked for is released, as far as it was to be had: `given`, and why not more.
  [[nodiscard]] Status settle(const Recall& recall, Bytes given, std::optional<Errc> why_not_more);

  // F52. Slabs whose memory is gone since the last call: their owner has died, as the broker said, or with
  // it.
  struct LostSlabs {
    std::vector<std::uint64_t> ids;  // of leases
    bool all = false;
  };
  [[nodiscard]] LostSlabs take_lost_slabs();
  // Why, in one line; how often it happened.
  [[nodiscard]] std::string lost_slabs_text();
  [[nodiscard]] std::uint32_t losses() const { return losses_.load(std::memory_order_relaxed); }

  // In a forked child: closes the child's copy of the socket, so that the parent's session ends with the
  // parent. Async-signal-safe; nothing else may be called in the child.
  void abandon_in_child() noexcept;

 private:
  BrokerLink(Fd socket, std::string path, std::chrono::milliseconds answer_time)
      : socket_(std::move(socket)), path_(std::move(path)), answer_time_(answer_time) {}

  using Clock = std::chrono::steady_clock;
  // One caller at the socket, which is off the watch meanwhile.
  class Exchange {
   public:
    explicit Exchange(BrokerLink& link);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    BrokerLink& link_;
    const std::lock_guard<std::mutex> lock_;
  };
  [[nodiscard]] Status hello(const Options& options);
  // Decodes what was received; loses the connection over what no broker may send.
  [[nodiscard]] Result<wire::Message> understood(const channel::Datagram& datagram);
  // The next message; whatever does not answer `request_id` is dealt with here. `datagram` keeps its fds.
  [[nodiscard]] Result<wire::Message> answer_to(std::uint64_t request_id, channel::Datagram& datagram,
                                                Clock::time_point deadline);
  [[nodiscard]] Result<Granted> receive_grant(std::uint64_t request_id, const TakePart& take,
                                              Clock::time_point deadline);
  void settle_stranger(const wire::Message& message, channel::Datagram& datagram);
  // Of a GRANT or a SLAB_GRANT.
  template <typename G>
  void acknowledge(const G& grant);
  template <typename G>
  void refuse_grant(const G& grant, Errc reason);
  template <typename M>
  [[nodiscard]] Status send(const M& message);
  bool set_watched(bool on);
  // The same error, said so that a person knows what follows.
  [[nodiscard]] Error gone(Error why);
  // Remembers why, and closes the socket.
  Error lose(Error why);

  std::mutex mutex_;
  Fd socket_;
  int epoll_ = -1;
  const std::string path_;
  const std::chrono::milliseconds answer_time_;
  wire::Welcome welcome_;
  std::vector<Fd> pages_;
  std::uint64_t next_request_ = 1;
  std::optional<Error> lost_;

  static constexpr std::size_t kMostRecalls = 64;  // more unanswered ones are an attack
  std::mutex recalls_mutex_;                       // of the next; taken inside mutex_, or alone
  std::deque<Recall> recalls_;
  std::atomic<std::size_t> recalls_waiting_{0};

  std::mutex lost_slabs_mutex_;  // of the next two; taken inside mutex_, or alone
  LostSlabs lost_slabs_;
  std::string lost_slabs_text_;
  std::atomic<std::uint32_t> losses_{0};
};

}  // namespace apportion
