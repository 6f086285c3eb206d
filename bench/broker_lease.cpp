// Gates B1 and B3: the round trip of a lease through the library's link, from the request to its
// acknowledgement; the chunk comes as a descriptor, which is closed at once. Returning it is not timed.
//
// Every chunk was leased to this user and job once before, so that none needs a scrub.
#include <algorithm>
#include <chrono>

#include "bench/gates.hpp"
#include "bench/peers/ping_pong.hpp"
#include "libclient/broker_link.hpp"

namespace apportion::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A session of the job "bench" on a pool of 192 chunks.
class Lessee {
 public:
  static Result<std::unique_ptr<Lessee>> open() {
    std::unique_ptr<Lessee> lessee(new Lessee);
    Result<std::unique_ptr<Stage>> stage = Stage::set_up(
        {.device = 8_GiB, .broker = "pool = \"6GiB\"", .jobs = "[jobs.bench]\nshare = \"1.0\"\n"});
    if (!stage) return stage.error();
    lessee->stage_ = *std::move(stage);
    BrokerLink::Options options;
    options.job = "bench";
    options.socket = lessee->stage_->socket();
    Result<std::unique_ptr<BrokerLink>> link = BrokerLink::open(options);
    if (!link) return link.error();
    lessee->link_ = *std::move(link);
    lessee->chunk_ = Bytes{lessee->link_->welcome().chunk_bytes};
    if (const Result<double> all = lessee->lease(192); !all) return all.error();
    if (Status back = lessee->give_back(); !back) return back.error();
    return lessee;
  }

  // Microseconds until `chunks` more are leased in one request.
  Result<double> lease(std::uint32_t chunks) {
    const Bytes bytes = chunk_ * chunks;
    const auto start = Clock::now();
    const Result<BrokerLink::Granted> granted = link_->request(
        bytes, bytes, 0,
        [this](Bytes, std::span<const wire::ChunkEntry> entries, std::vector<Fd> fds) -> Status {
          for (const wire::ChunkEntry& entry : entries)
            held_.push_back(entry.chunk_id);
          fds.clear();
          return Done{};
        });
    const double us = us_since(start);
    if (!granted) return granted.error();
    if (granted->error) return *granted->error;
    return us;
  }
  Status give_back() {
    Status released = link_->release(held_);
    held_.clear();
    return released;
  }

 private:
  Lessee() = default;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<BrokerLink> link_;
  Bytes chunk_;
  std::vector<std::uint64_t> held_;
};

struct Round {
  double p50;
  double p99;
};

Round round_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {quantile(samples, 0.5), quantile(samples, 0.99)};
}

}  // namespace

Status measure_lease(Run& run) {
  Result<std::unique_ptr<Lessee>> lessee = Lessee::open();
  if (!lessee) return lessee.error();
  Result<std::unique_ptr<PingPong>> peer = PingPong::start();
  if (!peer) return peer.error();
  const unsigned samples = run.options.brief ? 50 : 1000;
  std::vector<double> ours50, ours99, peers50, peers99;
  // The first of each is not counted.
  for (unsigned round = 0; round <= run.options.rounds; ++round) {
    std::vector<double> ours, peers;
    for (unsigned turn = 0; turn < 2; ++turn) {
      for (unsigned i = 0; i < samples; ++i) {
        if ((round + turn) % 2 == 0) {
          const Result<double> us = (*lessee)->lease(1);
          if (!us) return us.error();
          ours.push_back(*us);
          if (Status back = (*lessee)->give_back(); !back) return back;
        } else {
          const auto start = Clock::now();
          if (!(*peer)->exchange()) return Error{Errc::disconnected, "the ping-pong's other side is gone"};
          peers.push_back(us_since(start));
        }
      }
    }
    if (round == 0) continue;
    const Round our = round_of(std::move(ours));
    const Round their = round_of(std::move(peers));
    ours50.push_back(our.p50);
    ours99.push_back(our.p99);
    peers50.push_back(their.p50);
    peers99.push_back(their.p99);
  }
  run.report.add_timed("B1", "-", "lease of 1 chunk / ping-pong, p50", 1.3, ours50, peers50, "us");
  run.report.add_timed("B1", "-", "lease of 1 chunk / ping-pong, p99", 1.5, ours99, peers99, "us");
  return Done{};
}

Status measure_many(Run& run) {
  Result<std::unique_ptr<Lessee>> lessee = Lessee::open();
  if (!lessee) return lessee.error();
  constexpr std::uint32_t kChunks = 64;
  const unsigned samples = run.options.brief ? 2 : 20;
  std::vector<double> ours, singles;
  for (unsigned round = 0; round <= run.options.rounds; ++round) {
    std::vector<double> many, one;
    for (unsigned turn = 0; turn < 2 * samples; ++turn) {
      if ((round + turn) % 2 == 0) {
        const Result<double> us = (*lessee)->lease(kChunks);
        if (!us) return us.error();
        many.push_back(*us / kChunks);
      } else {
        for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
          const Result<double> single = (*lessee)->lease(1);
          if (!single) return single.error();
          one.push_back(*single);
        }
      }
      if (Status back = (*lessee)->give_back(); !back) return back;
    }
    if (round == 0) continue;
    ours.push_back(spread_of(std::move(many)).median);
    singles.push_back(spread_of(std::move(one)).median);
  }
  run.report.add_timed("B3", "-", "chunk of a grant of 64 / single lease", 0.1, ours, singles, "us");
  return Done{};
}

}  // namespace apportion::bench
