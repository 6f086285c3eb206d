// One attached session as its user sees it: the arena over leases, what the job page says, and the report
// page.
//
// Owns, in this order: the link to the broker, the device, the address ranges (none with the ipc transport),
// the source, the arena, the thread that answers for the program while that makes no call. Promises: allocate
// and deallocate touch nothing but the arena while it has room; what is reported to the broker is a few plain
// stores, every kReportEvery calls of a thread. Never: signals, exit handlers. Thread-safe, but for detach(),
// which is the last call.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gpu/mapping.hpp"
#include "libclient/arena.hpp"
#include "libclient/attendant.hpp"
#include "libclient/broker_link.hpp"
#include "libclient/figures.hpp"
#include "libclient/lease_source.hpp"
#include "libclient/slab_source.hpp"
#include "shm/job_page.hpp"
#include "shm/report_page.hpp"

namespace apportion {

class Client final : private Attendant::Duties {
 public:
  // Errors: BrokerLink's; not_found where this process cannot see the broker's device; driver.
  // growth_chunks: how many chunks growth asks for at least; 0: as many as make 32 MiB.
  [[nodiscard]] static Result<std::unique_ptr<Client>> attach(const BrokerLink::Options& options,
                                                              std::uint32_t growth_chunks = 0);
  ~Client() override;

  // As Arena's. exact: one driver handle for the block.
  [[nodiscard]] Address try_allocate(Bytes bytes, Stream stream) noexcept {
    if (slabs_ != nullptr && losing()) [[unlikely]]
      return 0;
    const Address block = arena_->try_allocate(bytes, stream);
    if (block != 0) tick();
    return pointer_of(block);
  }
  [[nodiscard]] bool try_deallocate(Address pointer, Stream stream) noexcept {
    const bool freed = arena_->try_deallocate(name_of(pointer), stream);
    if (freed) tick();
    if (arena_->due()) [[unlikely]]
      have_swept();
    return freed;
  }
  [[nodiscard]] bool interrupted() const noexcept {
    return arena_->interrupted() || answering_.held_by_this_thread();
  }
  // F52: disconnected, while blocks are live whose memory is gone.
  [[nodiscard]] Result<Address> allocate(Bytes bytes, Stream stream, bool exact);
  Status deallocate(Address pointer, Stream stream);
  Status stream_gone(Stream stream) { return arena_->stream_gone(stream); }
  [[nodiscard]] Result<Bytes> trim_to(Bytes mapped);
  Status reserve(Bytes bytes);
  [[nodiscard]] Result<std::uint64_t> graph_pool_begin(Stream stream, std::uint64_t pool) {
    return arena_->graph_pool_begin(stream, pool);
  }
  Status graph_pool_end(Stream stream) { return arena_->graph_pool_end(stream); }
  Status graph_pool_release(std::uint64_t pool) { return arena_->graph_pool_release(pool); }

  // From the job page: no message, no system call.
  [[nodiscard]] Result<apportion_info> info() const;
  [[nodiscard]] Result<apportion_stats> stats();
  [[nodiscard]] Status check() { return arena_->check(); }

  // Waits for the GPU, unmaps everything, live blocks included, and ends the session. Where the GPU cannot be
  // waited for (busy: a stream is being captured) all is as before. Where memory could not be unmapped, or
  // the context is broken for ever (rule 19), the session is left without a word, so that the broker keeps it
  // charged until this process is gone.
  Status detach();
  [[nodiscard]] bool detached() const { return detached_; }
  void abandon_in_child() noexcept {
    broker_->abandon_in_child();
    attendant_.abandon_in_child();
  }

 private:
  static constexpr std::uint32_t kReportEvery = 1021;  // a prime: a thread that takes turns reports for all
  static constexpr std::uint64_t kMostSweepMs = 86'400'000;  // a day: longer is never
  static constexpr std::uint32_t kLook = 16;                 // blocks, for the largest free one of a report

  Client() = default;
  [[nodiscard]] Status open_device();
  [[nodiscard]] Status open_pages();
  [[nodiscard]] Status open_arena(std::uint32_t growth_chunks);
  [[nodiscard]] Status open_slab_arena(std::uint32_t growth_slots);
  void tick() noexcept {
    if (++ticks_ < kReportEvery) return;
    ticks_ = 0;
    report();
  }
  void report() noexcept;
  [[nodiscard]] Status start_attendant();
  std::optional<Attendant::Clock::time_point> attend() noexcept override;
  // Gives back what the broker asked for meanwhile: after the slow path, and on the session's thread.
  void answer_recalls(Arena::Quiesce how);
  // After the slow path.
  void settle_call();
  void have_swept() noexcept;

  // With the ipc transport the arena's addresses are names.
  [[nodiscard]] Address pointer_of(Address name) const noexcept {
    return slabs_ == nullptr || name == 0 ? name : slabs_->addresses().real_of(name);
  }
  [[nodiscard]] Address name_of(Address pointer) const noexcept {
    return slabs_ == nullptr ? pointer : slabs_->addresses().name_of(pointer);
  }
  // F52: whether the broker said that slabs are lost, and it is not settled yet.
  [[nodiscard]] bool losing() const noexcept {
    return broker_->losses() != settled_losses_.load(std::memory_order_relaxed);
  }
  // Lets go of them. Error: disconnected, with the broker's line, while blocks in them are live.
  [[nodiscard]] Status settle_losses();

  SlowLock answering_;  // before the arena's: one thread answers the broker's recalls at a time (F48)
  bool reclaimable_ = false;
  bool detached_ = false;
  std::unique_ptr<BrokerLink> broker_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<JobPageReader> job_;
  std::unique_ptr<ReportPage> page_;
  AddressRange small_;
  AddressRange large_;
  Bytes reservable_;  // addresses of the arena
  std::unique_ptr<SessionSource> source_;
  const SlabSource* slabs_ = nullptr;  // source_, with the ipc transport
  std::atomic<std::uint32_t> settled_losses_{0};
  std::unique_ptr<Arena> arena_;
  std::chrono::milliseconds sweep_every_{};
  std::atomic<bool> sweep_wanted_{false};
  std::optional<Attendant::Clock::time_point> next_sweep_;  // the session's thread's
  Attendant attendant_{*this};
  // Of a thread, over all sessions: threads share no word for it. initial-exec as ShortLock's (F48).
  static __attribute__((tls_model("initial-exec"))) constinit thread_local std::uint32_t ticks_;
};

}  // namespace apportion
