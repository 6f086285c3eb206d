#include "tests/unit/libclient/fake_broker.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpu/capture_guard.hpp"
#include "shm/memfd.hpp"
#include "shm/socket_path.hpp"

namespace apportion::testing {

namespace {

using namespace std::chrono_literals;

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "fake broker: %s\n", what.c_str());
  std::abort();
}

template <typename T>
T must(Result<T> result) {
  if (!result) give_up(result.error().message);
  return *std::move(result);
}

channel::Deadline soon() {
  return std::chrono::steady_clock::now() + 2s;
}

}  // namespace

SimulatedDevice::SimulatedDevice() {
  cudasim::FolderOptions options;
  options.device_bytes = {1ULL << 30};
  options.context_bytes = 16ULL << 20;
  folder = std::make_unique<cudasim::TemporaryFolder>(options);
  ::setenv("CUDASIM_DIR", folder->path().c_str(), 1);
  device = std::make_unique<Device>(must(Device::open("sim:1GiB")));
}

SimulatedDevice& SimulatedDevice::instance() {
  static SimulatedDevice simulated;
  return simulated;
}

FakeBroker::FakeBroker(std::uint32_t limit_chunks, Memory memory)
    : device_(*SimulatedDevice::instance().device),
      maker_(device_),
      limit_chunks_(limit_chunks),
      memory_(memory) {
  char pattern[] = "/tmp/apportion-fake-XXXXXX";
  if (::mkdtemp(pattern) == nullptr) give_up("no folder");
  folder_ = pattern;
  path_ = folder_ + "/broker.sock";
  listening_ = must(listen_at(path_, 0600));
  stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
  job_ = std::make_unique<JobPageWriter>(
      must(JobPageWriter::create(kEpoch, "trainer", memory == Memory::slabs ? FakeSlabs::kPlaces : 0)));
  publish();
  thread_ = std::thread([this] { serve(); });
}

FakeBroker::~FakeBroker() {
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_.join();
  std::filesystem::remove_all(folder_);
}

FakeBroker::Seen FakeBroker::seen() {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::size_t FakeBroker::leased() {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& session : sessions_)
    count += session->leases.size();
  return count;
}

Bytes FakeBroker::leased_slabs() {
  const std::lock_guard lock(mutex_);
  return held_slabs();
}

Bytes FakeBroker::held_slabs() const {
  Bytes held;
  for (const auto& session : sessions_) {
    for (const auto& [id, bytes] : session->slabs)
      held += bytes;
  }
  return held;
}

void FakeBroker::lose_slabs() {
  const std::lock_guard lock(mutex_);
  slabs_.die(*job_);
  for (const auto& session : sessions_) {
    auto lost = wire::make<wire::SlabsLost>(0, kEpoch);
    lost.part = {0, 1, static_cast<std::uint32_t>(session->slabs.size()), 0};
    lost.text.set("the process that owned them has died");
    std::size_t index = 0;
    for (const auto& [id, bytes] : session->slabs)
      lost.ids[index++] = id;
    session->slabs.clear();
    if (index != 0)
      static_cast<void>(channel::send(session->socket.get(), wire::bytes_of(lost), {}, soon()).ok());
  }
}

std::size_t FakeBroker::take_back(Session& session, std::uint64_t id) {
  if (session.slabs.erase(id) == 0) return session.leases.erase(id);
  slabs_.free(*job_, id);
  return 1;
}

bool FakeBroker::wait(const std::function<bool(const Seen&)>& done) {
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (!done(seen())) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

ReportFigures FakeBroker::report() {
  const std::lock_guard lock(mutex_);
  if (sessions_.empty()) give_up("no session");
  return sessions_.front()->report->read_clamped(1_GiB);
}

void FakeBroker::recall(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (sessions_.empty()) give_up("no session");
  send_recall(*sessions_.front(), bytes);
}

void FakeBroker::send_recall(Session& session, Bytes bytes) {
  auto reclaim = wire::make<wire::Reclaim>(next_id_++, kEpoch);
  reclaim.bytes = bytes.value;
  static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(reclaim), {}, soon()).ok());
}

void FakeBroker::publish() {
  JobFigures figures;
  figures.guarantee = figures.in_force = figures.covered = (kChunk * (limit_chunks_ / 2)).value;
  figures.limit = (kChunk * limit_chunks_).value;
  std::size_t chunks = 0;
  for (const auto& session : sessions_)
    chunks += session->leases.size();
  figures.used = figures.charged = (kChunk * chunks + held_slabs()).value;
  figures.told_total = figures.guarantee;
  figures.told_free = saturating_sub(Bytes{figures.guarantee}, Bytes{figures.used}).value;
  figures.told_total_reclaimable = figures.limit;
  figures.told_free_reclaimable = figures.limit - figures.used;
  figures.sessions = sessions_.size();
  job_->publish(figures);
}

void FakeBroker::serve() {
  for (;;) {
    std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      for (const auto& session : sessions_)
        entries.push_back({session->socket.get(), POLLIN, 0});
    }
    if (::poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[0].revents != 0) return;
    const std::lock_guard lock(mutex_);
    for (std::size_t index = entries.size(); index-- > 2;) {
      if (entries[index].revents == 0) continue;
      const auto session = sessions_.begin() + static_cast<std::ptrdiff_t>(index - 2);
      if (!serve(**session)) sessions_.erase(session);  // its chunks go with it
      publish();
    }
    if (entries[1].revents != 0) {
      if (Result<Fd> socket = accept_from(listening_.get()); socket) {
        sessions_.push_back(std::make_unique<Session>());
        sessions_.back()->socket = *std::move(socket);
      }
    }
  }
}

bool FakeBroker::serve(Session& session) {
  const CaptureGuard guard(
      device_.driver());  // a broker is another process: no capture of the client's is its own
  channel::Datagram datagram;
  const Result<bool> received = channel::try_receive(session.socket.get(), datagram);
  if (!received) {
    ++seen_.hang_ups;
    return false;
  }
  if (!*received) return true;
  const Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::client);
  session.kept.clear();
  if (!message) give_up("the client sent nonsense: " + message.error().message);
  return answer(session, *message);
}

bool FakeBroker::answer(Session& session, const wire::Message& message) {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) {
    ++seen_.hellos;
    seen_.job = hello->job.view();
    seen_.label = hello->label.view();
    seen_.hello_flags = hello->flags;
    if (refuse_hello) {
      auto refused = wire::make<wire::Refused>(hello->header.request_id, kEpoch);
      refused.code = static_cast<std::uint32_t>(Errc::not_found);
      refused.text.set("there is no job \"" + seen_.job + "\" in apportion.toml");
      static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(refused), {}, soon()).ok());
      return false;
    }
    welcome(session, *hello);
    return true;
  }
  if (const auto* request = std::get_if<wire::Request>(&message)) {
    ++seen_.requests;
    seen_.asked.emplace_back(request->min_bytes, request->want_bytes);
    if (hang_up_on_request) return false;
    if (!mute) grant(session, *request);
    return true;
  }
  if (const auto* ack = std::get_if<wire::GrantAck>(&message))
    seen_.acked += static_cast<int>(ack->part.count);
  if (const auto* nack = std::get_if<wire::GrantNack>(&message)) {
    seen_.nacked += static_cast<int>(nack->part.count);
    seen_.nack_reason = static_cast<Errc>(nack->reason);
    for (std::size_t index = 0; index < nack->part.count; ++index)
      static_cast<void>(take_back(session, nack->ids[index]));
  }
  if (const auto* release = std::get_if<wire::Release>(&message)) {
    for (std::size_t index = 0; index < release->part.count; ++index) {
      const auto had = static_cast<int>(take_back(session, release->ids[index]));
      seen_.released += had;
      seen_.strange += 1 - had;
    }
    if (release->part.part + 1 == release->part.parts) {
      publish();
      const auto released = wire::make<wire::Released>(release->header.request_id, kEpoch);
      static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(released), {}, soon()).ok());
    }
  }
  if (const auto* reclaimed = std::get_if<wire::Reclaimed>(&message)) seen_.reclaimed.push_back(*reclaimed);
  if (const auto* detach = std::get_if<wire::Detach>(&message)) {
    ++seen_.detaches;
    session.leases.clear();
    while (!session.slabs.empty())
      static_cast<void>(take_back(session, session.slabs.begin()->first));
    const auto detached = wire::make<wire::Detached>(detach->header.request_id, kEpoch);
    static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(detached), {}, soon()).ok());
  }
  return true;
}

void FakeBroker::welcome(Session& session, const wire::Hello& hello) {
  auto message = wire::make<wire::Welcome>(hello.header.request_id, kEpoch);
  message.header.major = welcome_major;
  message.token.bytes[0] = 1;
  message.session_id = 42;
  message.chunk_bytes = kChunk.value;
  message.pool_bytes = (kChunk * limit_chunks_).value;
  message.device_total_bytes = device_.facts().total.value;
  message.wait_ms = 0;
  message.idle_return_ms = idle_return_ms;
  message.flags =
      wire::Welcome::kSimulated | (memory_ == Memory::slabs ? wire::Welcome::kSlabs : std::uint32_t{0});
  message.job.set("trainer");
  message.device_uuid.set(device_.facts().uuid);
  message.device_name.set(device_.facts().name);
  message.driver_path.set(device_.facts().driver_file);
  message.cudasim_dir.set(SimulatedDevice::instance().folder->path());
  session.report = std::make_unique<ReportPage>(must(ReportPage::create(kEpoch, 42)));
  const Fd ledger = must(make_memfd("ledger", 4096_B));
  const int fds[] = {ledger.get(), job_->fd(), session.report->fd()};
  static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(message), fds, soon()).ok());
}

void FakeBroker::grant(Session& session, const wire::Request& request) {
  if (reclaim_first) send_recall(session, 4_MiB);
  if (memory_ == Memory::slabs) return grant_slab(session, request);
  std::size_t held = 0;
  for (const auto& other : sessions_)
    held += other->leases.size();
  const std::size_t room = limit_chunks_ > held ? limit_chunks_ - held : 0;
  const bool exact = (request.flags & wire::Request::kExact) != 0;
  const std::size_t want = exact ? 1 : Bytes{request.want_bytes} / kChunk;
  const std::size_t need = exact ? 1 : Bytes{request.min_bytes} / kChunk;
  if (need > room) {
    auto refusal = wire::make<wire::Refusal>(request.header.request_id, kEpoch);
    refusal.code = static_cast<std::uint32_t>(Errc::quota);
    refusal.text.set("job trainer: asked for more than its limit");
    static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(refusal), {}, soon()).ok());
    return;
  }
  std::vector<std::uint64_t> ids;
  for (std::size_t index = 0; index < std::min(want, room); ++index) {
    ids.push_back(next_id_++);
    session.leases.emplace(ids.back(), must(maker_.make(exact ? Bytes{request.want_bytes} : kChunk)));
  }
  publish();
  if (old_grant_first) {
    const std::uint64_t old = next_id_++;
    session.leases.emplace(old, must(maker_.make(kChunk)));
    send_grant(session, request.header.request_id, kEpoch - 1, 0, 1, {old});
    session.leases.erase(old);
  }
  const std::size_t parts = (ids.size() + part_chunks - 1) / part_chunks;
  for (std::size_t part = 0; part < parts; ++part) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(part * part_chunks);
    const auto end = std::min(begin + static_cast<std::ptrdiff_t>(part_chunks.load()), ids.end());
    send_grant(session, request.header.request_id, kEpoch, static_cast<std::uint32_t>(part),
               static_cast<std::uint32_t>(parts), {begin, end});
  }
}

void FakeBroker::grant_slab(Session& session, const wire::Request& request) {
  if ((request.flags & wire::Request::kExact) == 0) give_up("a slab was asked for as chunks");
  const Bytes bytes{request.want_bytes};
  if (held_slabs() + bytes > kChunk * limit_chunks_) {
    auto refusal = wire::make<wire::Refusal>(request.header.request_id, kEpoch);
    refusal.code = static_cast<std::uint32_t>(Errc::quota);
    refusal.text.set("job trainer: asked for more than its limit");
    static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(refusal), {}, soon()).ok());
    return;
  }
  const std::uint64_t id = next_id_++;
  auto message = wire::make<wire::SlabGrant>(request.header.request_id, kEpoch);
  message.part = {0, 1, 1, 0};
  message.entries[0] = {id, bytes.value, slabs_.make(*job_, id, bytes), 0};
  session.slabs.emplace(id, bytes);
  publish();
  if (wrong_place) message.entries[0].place += 1;
  if (wrong_size) message.entries[0].bytes *= 2;
  static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(message), {}, soon()).ok());
}

void FakeBroker::send_grant(Session& session, std::uint64_t request_id, std::uint64_t epoch,
                            std::uint32_t part, std::uint32_t parts, std::vector<std::uint64_t> ids) {
  auto message = wire::make<wire::Grant>(request_id, epoch);
  message.part = {part, parts, static_cast<std::uint32_t>(ids.size()), 0};
  std::vector<Fd> owned;
  std::vector<int> fds;
  for (std::size_t index = 0; index < ids.size(); ++index) {
    const Chunk& chunk = session.leases.at(ids[index]);
    message.entries[index] = {ids[index], chunk.size().value};
    owned.push_back(strange_fds ? must(make_memfd("strange", 4096_B)) : must(chunk.export_fd()));
    fds.push_back(owned.back().get());
  }
  if (forget_fds) fds.clear();
  static_cast<void>(channel::send(session.socket.get(), wire::bytes_of(message), fds, soon()).ok());
  if (keep_fds) session.kept = std::move(owned);
}

std::size_t open_fds() {
  std::size_t count = 0;
  for (auto entry = std::filesystem::directory_iterator("/proc/self/fd");
       entry != std::filesystem::directory_iterator(); ++entry)
    ++count;
  return count;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::size_t count = 0;
  while (std::getline(maps, line))
    ++count;
  return count;
}

}  // namespace apportion::testing
