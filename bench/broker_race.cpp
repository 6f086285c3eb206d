// Gate B5: 32 processes that start at once and each take all of their guarantee, which together are the whole
// pool: from the start gun to the last one served, against a plain epoll server. And exactly: nobody below
// its guarantee, no chunk given twice, no more given than there is.
//
// Each client connects, greets, asks for its 16 chunks in one request, and holds them until all have theirs.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <set>

#include "bench/gates.hpp"
#include "bench/peers/lease_server.hpp"
#include "libclient/broker_link.hpp"

namespace apportion::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kClients = 32;
constexpr unsigned kChunks = 16;  // each

struct Slot {
  Clock::time_point served;
  std::uint64_t bytes = 0;
  unsigned chunks = 0;
  std::pair<dev_t, ino_t> identities[kChunks];
  char error[256] = "";
};

// What one client does; keeps what it got until `finish` says so. Fills its slot.
using Racer = std::function<void(unsigned client, Slot& slot, const std::function<void()>& finish)>;

struct Race {
  double ms = 0;
  std::vector<Slot> slots;
};

void note(Slot& slot, std::span<const Fd> fds) {
  for (const Fd& fd : fds) {
    struct stat file {};
    if (::fstat(fd.get(), &file) != 0) continue;
    if (slot.chunks < kChunks) slot.identities[slot.chunks] = {file.st_dev, file.st_ino};
    ++slot.chunks;  // more than its guarantee is over-commitment, counted below
  }
}

void wait_for_end(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) < 0 && errno == EINTR) {
  }
}

struct Pipe {
  Fd read;
  Fd write;
  static Result<Pipe> make() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
    return Pipe{Fd(ends[0]), Fd(ends[1])};
  }
};

// One race. `while_held` is called when all have theirs.
Result<Race> run_race(const Racer& racer, const std::function<Status()>& while_held) {
  Result<Pipe> start = Pipe::make();
  Result<Pipe> served = Pipe::make();
  Result<Pipe> end = Pipe::make();
  if (!start || !served || !end) return Error{Errc::system, "no descriptors left for a race"};
  const std::size_t size = sizeof(Slot) * kClients;
  void* shared = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return system_error("cannot map shared memory", errno);
  Slot* const slots = static_cast<Slot*>(shared);
  std::vector<pid_t> children;
  for (unsigned client = 0; client < kClients; ++client) {
    new (&slots[client]) Slot;
    const pid_t pid = ::fork();
    if (pid == 0) {
      start->write.reset();
      end->write.reset();
      const char ready = 1;
      if (::write(served->write.get(), &ready, 1) != 1) ::_exit(1);
      wait_for_end(start->read.get());
      racer(client, slots[client], [&] {
        if (::write(served->write.get(), &ready, 1) != 1) ::_exit(1);
        wait_for_end(end->read.get());
      });
      ::_exit(0);
    }
    if (pid > 0) children.push_back(pid);
  }
  // A client that died lets the read end.
  served->write.reset();
  const auto wait_for_all = [&] {
    for (std::size_t i = 0; i < children.size(); ++i)
      wait_for_end(served->read.get());
  };
  wait_for_all();
  Race race;
  const auto gun = Clock::now();
  start->write.reset();
  wait_for_all();
  Status held = while_held();
  end->write.reset();
  for (const pid_t pid : children)
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  race.slots.assign(slots, slots + kClients);
  ::munmap(shared, size);
  if (children.size() != kClients) return Error{Errc::system, "32 clients could not be started"};
  if (!held) return held.error();
  for (const Slot& slot : race.slots) {
    if (slot.error[0] != '\0') return Error{Errc::disconnected, std::string("a racer: ") + slot.error};
    race.ms = std::max(race.ms, std::chrono::duration<double, std::milli>(slot.served - gun).count());
  }
  return race;
}

void fail(Slot& slot, const Error& error) {
  std::snprintf(slot.error, sizeof slot.error, "%s", error.message.c_str());
}

Racer through_broker(const std::string& socket) {
  return [socket](unsigned client, Slot& slot, const std::function<void()>& finish) {
    BrokerLink::Options options;
    options.job = "racer-" + std::to_string(client);
    options.socket = socket;
    Result<std::unique_ptr<BrokerLink>> link = BrokerLink::open(options);
    if (!link) {
      fail(slot, link.error());
      return finish();
    }
    const Bytes guarantee{(*link)->welcome().guarantee_bytes};
    std::vector<Fd> chunks;
    const auto granted =
        (*link)->request(guarantee, guarantee, 0,
                         [&](Bytes, std::span<const wire::ChunkEntry>, std::vector<Fd> fds) -> Status {
                           for (Fd& fd : fds)
                             chunks.push_back(std::move(fd));
                           return Done{};
                         });
    slot.served = Clock::now();
    if (granted) slot.bytes = granted->taken.value;
    note(slot, chunks);
    finish();
    (void)(*link)->detach().ok();
  };
}

Racer through_server(const std::string& socket) {
  return [socket](unsigned, Slot& slot, const std::function<void()>& finish) {
    Result<LeaseClient> client = LeaseClient::open(socket);
    if (!client) {
      fail(slot, client.error());
      return finish();
    }
    const Result<std::vector<Fd>> chunks = client->request(kChunks);
    slot.served = Clock::now();
    if (!chunks) fail(slot, chunks.error());
    finish();
  };
}

}  // namespace

Status measure_race(Run& run) {
  StageOptions options;
  options.device = 20_GiB;
  options.broker = "pool = \"16GiB\"";
  for (unsigned client = 0; client < kClients; ++client)
    options.jobs +=
        "[jobs.racer-" + std::to_string(client) + "]\nshare = \"1/" + std::to_string(kClients) + "\"\n";
  Result<std::unique_ptr<Stage>> stage = Stage::set_up(options);
  if (!stage) return stage.error();
  const std::string server_socket = (*stage)->socket() + ".peer";
  Result<std::unique_ptr<LeaseServer>> server =
      LeaseServer::start(server_socket, kClients * kChunks, kChunks);
  if (!server) return server.error();
  const Racer broker_racer = through_broker((*stage)->socket());
  const Racer server_racer = through_server(server_socket);

  std::vector<double> ours, peers;
  std::uint64_t below = 0;
  std::uint64_t over = 0;
  const auto look = [&]() -> Status {
    const Result<StatusAnswer> status = (*stage)->status();
    if (!status) return status.error();
    const auto& totals = status->broker.totals;
    if (totals.charged + totals.in_transit + totals.free + totals.loose != totals.pool) ++over;
    return Done{};
  };
  for (unsigned round = 0; round <= run.options.rounds; ++round) {
    for (unsigned turn = 0; turn < 2; ++turn) {
      if ((round + turn) % 2 == 0) {
        const Result<Race> race = run_race(broker_racer, look);
        if (!race) return race.error();
        std::set<std::pair<dev_t, ino_t>> seen;
        std::uint64_t chunks = 0;
        for (const Slot& slot : race->slots) {
          below += slot.chunks < kChunks || Bytes{slot.bytes} < 32_MiB * kChunks ? 1 : 0;
          chunks += slot.chunks;
          seen.insert(slot.identities, slot.identities + std::min<std::uint64_t>(slot.chunks, kChunks));
        }
        over += chunks - seen.size();  // chunks that two of them got, or one above its guarantee
        if (Status idle = (*stage)->wait_idle(); !idle) return idle;
        if (round != 0) ours.push_back(race->ms);
      } else {
        const Result<Race> race = run_race(server_racer, [] { return Status(Done{}); });
        if (!race) return race.error();
        if (round != 0) peers.push_back(race->ms);
      }
    }
  }
  run.report.add_timed("B5", "-", "start race of 32 / plain epoll server", 1.5, ours, peers, "ms");
  const auto races = static_cast<double>(run.options.rounds + 1);
  run.report.add_count("B5", "-", "clients below their guarantee", static_cast<double>(below),
                       {{"races", races}});
  run.report.add_count("B5", "-", "chunks over-committed", static_cast<double>(over), {{"races", races}});
  return Done{};
}

}  // namespace apportion::bench
