#include "libclient/client.hpp"

#include <algorithm>
#include <cstdlib>

namespace apportion {

Result<std::unique_ptr<Client>> Client::attach(const BrokerLink::Options& options,
                                               std::uint32_t growth_chunks) {
  Result<std::unique_ptr<BrokerLink>> broker = BrokerLink::open(options);
  if (!broker) return broker.error();
  std::unique_ptr<Client> client(new Client);
  client->broker_ = *std::move(broker);
  client->reclaimable_ = options.reclaimable;
  if (Status opened = client->open_pages(); !opened) return opened.error();
  if (Status opened = client->open_device(); !opened) return opened.error();
  if (Status opened = client->open_arena(growth_chunks); !opened) return opened.error();
  if (Status started = client->start_attendant(); !started) return started.error();
  client->report();
  return client;
}

Client::~Client() {
  attendant_.stop();
  if (broker_ == nullptr || detached_) return;
  if (!detach()) broker_->hang_up();
}

Status Client::open_pages() {
  const std::vector<Fd> pages = broker_->take_pages();  // closed at the end: mappings keep what they need
  Result<JobPageReader> job = JobPageReader::open(pages[1].get());
  if (!job) return job.error();
  job_ = std::make_unique<JobPageReader>(*std::move(job));
  Result<ReportPage> report = ReportPage::open(pages[2].get());
  if (!report) return report.error();
  page_ = std::make_unique<ReportPage>(*std::move(report));
  return Done{};
}

Status Client::open_device() {
  const wire::Welcome& welcome = broker_->welcome();
  std::string driver;
  if ((welcome.flags & wire::Welcome::kSimulated) != 0) {
    // Only for a simulated device: a linked program finds it without variables of its own.
    driver = welcome.driver_path.view();
    ::setenv("CUDASIM_DIR", std::string(welcome.cudasim_dir.view()).c_str(), 1);
    ::setenv("CUDASIM_FORCE", "1", 1);
  }
  Result<Device> device = Device::open(welcome.device_uuid.view(), driver);
  if (!device) {
    Error error = device.error();
    error.message = "the broker at " + broker_->path() + " shares device " +
                    std::string(welcome.device_uuid.view()) +
                    ", which this process cannot use: " + error.message;
    return error;
  }
  device_ = std::make_unique<Device>(*std::move(device));
  return Done{};
}

Status Client::open_arena(std::uint32_t growth_chunks) {
  const Bytes chunk{broker_->welcome().chunk_bytes};
  const Bytes granularity = device_->facts().granularity;
  if ((broker_->welcome().flags & wire::Welcome::kSlabs) != 0) return open_slab_arena(growth_chunks);
  if (chunk.value <= ArenaRanges::kSmallBlock || round_down(chunk, granularity) != chunk) {
    return Error{Errc::protocol, "the broker's chunks of " + to_text(chunk) +
                                     " do not fit the device's granularity of " + to_text(granularity)};
  }
  ArenaRanges ranges = ArenaRanges::for_device(device_->facts().total, chunk, granularity);
  if (growth_chunks != 0) ranges.growth_chunks = growth_chunks;
  for (auto [range, bytes, base] : {std::tuple{&small_, ranges.small_bytes(), &ranges.small},
                                    std::tuple{&large_, ranges.large_bytes(), &ranges.large}}) {
    Result<AddressRange> reserved = AddressRange::reserve(*device_, bytes);
    if (!reserved) return reserved.error();
    *range = *std::move(reserved);
    *base = range->base();
    reservable_ += range->size();
    if (*base % granularity.value != 0) {  // rule 10: what came back is checked
      return Error{Errc::driver, "the driver reserved addresses that are not aligned to its own granularity"};
    }
  }
  source_ = std::make_unique<LeaseSource>(*broker_, *device_, chunk);
  arena_ = std::make_unique<Arena>(ranges, *source_);
  return Done{};
}

// Nothing is reserved: the addresses are names.
Status Client::open_slab_arena(std::uint32_t growth_slots) {
  static_assert(SlabAddresses::kPage == kSlabGranularity);
  ArenaRanges ranges = ArenaRanges::for_slabs(device_->facts().total, kSlabGranularity);
  ranges.small = Address{ArenaRanges::kMaxRange};
  ranges.large = ranges.small + ranges.small_bytes().value;
  if (growth_slots != 0) ranges.growth_chunks = growth_slots;
  auto source = std::make_unique<SlabSource>(*broker_, *device_, *job_);
  slabs_ = source.get();
  source_ = std::move(source);
  arena_ = std::make_unique<Arena>(ranges, *source_);
  reservable_ = ranges.small_bytes() + ranges.large_bytes();
  return Done{};
}

constinit thread_local std::uint32_t Client::ticks_ = 0;

Result<Address> Client::allocate(Bytes bytes, Stream stream, bool exact) {
  if (Status settled = settle_losses(); !settled) return settled.error();
  Result<Address> block = exact ? arena_->allocate_exact(bytes) : arena_->allocate(bytes, stream);
  settle_call();
  report();
  if (!block) return block;
  return pointer_of(*block);
}

Status Client::deallocate(Address pointer, Stream stream) {
  const Address block = name_of(pointer);
  Status freed = block != 0 || pointer == 0 ? arena_->deallocate(block, stream) : Arena::not_live(pointer);
  // Under the address that the program knows.
  if (slabs_ != nullptr && !freed && freed.error().code == Errc::invalid) freed = Arena::not_live(pointer);
  settle_call();
  tick();
  return freed;
}

Status Client::settle_losses() {
  if (slabs_ == nullptr || !losing()) return Done{};
  const std::uint32_t heard = broker_->losses();
  const Result<Bytes> live = arena_->settle_lost();
  if (!live) return live.error();
  if (live->value != 0) {
    return Error{Errc::disconnected,
                 to_text(*live) +
                     " of this session's blocks are gone; free them to go on: " + broker_->lost_slabs_text()};
  }
  settled_losses_.store(heard, std::memory_order_relaxed);
  return Done{};
}

Result<Bytes> Client::trim_to(Bytes mapped) {
  Result<Bytes> given = arena_->trim_to(mapped);
  settle_call();
  report();
  return given;
}

Status Client::reserve(Bytes bytes) {
  if (Status settled = settle_losses(); !settled) return settled;
  Status reserved = arena_->reserve(bytes);
  settle_call();
  report();
  return reserved;
}

// F56: what lies idle here may be needed by another session of the job. A lost connection is noticed by the
// next request.
void Client::answer_recalls(Arena::Quiesce how) {
  if (!broker_->recalled()) return;
  const SlowGuard guard(answering_);
  if (!guard.held()) return;
  while (const std::optional<BrokerLink::Recall> recall = broker_->take_recall()) {
    const Arena::Given given = arena_->give(recall->bytes, reclaimable_, how);
    const std::optional<Errc> why_not_more =
        given.error ? std::optional(given.error->code) : std::optional<Errc>();
    static_cast<void>(broker_->settle(*recall, given.bytes, why_not_more).ok());
  }
}

Status Client::start_attendant() {
  // Seen idle at kRipe sweeps in a row: for `idle_return` at least, and half of that longer at most.
  const std::uint64_t half_ms = broker_->welcome().idle_return_ms / 2;
  sweep_every_ = std::chrono::milliseconds(std::clamp<std::uint64_t>(half_ms, 1, kMostSweepMs));
  if (Status started = attendant_.start(); !started) return started;
  return broker_->watch(attendant_.watch());
}

void Client::settle_call() {
  // F52: who frees what was lost and asks for no more must not keep it open and charged.
  if (slabs_ != nullptr && losing()) static_cast<void>(settle_losses().ok());
  answer_recalls(Arena::Quiesce::synchronize);
  if (arena_->due()) have_swept();
}

// Once for each time that something becomes idle after a rest: a system call.
void Client::have_swept() noexcept {
  if (!arena_->take_due()) return;
  sweep_wanted_ = true;
  attendant_.wake();
}

std::optional<Attendant::Clock::time_point> Client::attend() noexcept {
  try {
    broker_->read_unasked();
    if (broker_->recalled()) {
      answer_recalls(Arena::Quiesce::events);
      report();
    }
    const auto now = Attendant::Clock::now();
    if (sweep_wanted_.exchange(false) && !next_sweep_) next_sweep_ = now + sweep_every_;
    if (next_sweep_ && now >= *next_sweep_) {
      next_sweep_.reset();
      if (arena_->sweep()) next_sweep_ = Attendant::Clock::now() + sweep_every_;
      // What its exchanges with the broker read is on nobody's watch any more.
      answer_recalls(Arena::Quiesce::events);
      report();
    }
  } catch (const std::bad_alloc&) {  // F31: what was asked for is not given
  }
  return next_sweep_;
}

Result<apportion_info> Client::info() const {
  const Result<JobFigures> job = job_->read();
  if (!job) return job.error();
  return info_of(broker_->welcome(), *job, reclaimable_);
}

Result<apportion_stats> Client::stats() {
  const Result<ArenaStats> arena = arena_->stats();
  if (!arena) return arena.error();
  const Result<JobFigures> job = job_->read();
  if (!job) return job.error();
  return stats_of(*arena, told_of(*job, reclaimable_).total, reservable_.value);
}

void Client::report() noexcept {
  const Result<ArenaStats> arena = arena_->stats(kLook);
  if (!arena) return;  // a signal handler in the middle of the arena
  const Result<JobFigures> job = job_->read();
  const std::uint64_t limit = job ? told_of(*job, reclaimable_).total : broker_->welcome().told_total_bytes;
  page_->write(report_of(*arena, limit, reservable_.value));
}

Status Client::detach() {
  Status ended = Done{};
  attendant_.stop();  // it may be in the middle of giving back
  if (arena_ != nullptr) {
    ended = arena_->wait_for_all();
    if (!ended && ended.error().code == Errc::busy) {
      static_cast<void>(attendant_.start().ok());  // else its callers answer for it
      return ended;
    }
    if (ended) ended = source_->unmap_all();
  }
  detached_ = true;
  if (ended.ok()) {
    ended = broker_->detach();
  } else {
    broker_->hang_up();
  }
  arena_.reset();
  slabs_ = nullptr;
  source_.reset();
  for (AddressRange* range : {&small_, &large_}) {
    if (Status freed = range->free(); !freed && ended.ok()) ended = freed;
  }
  return ended;
}

}  // namespace apportion
