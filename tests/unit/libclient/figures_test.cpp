#include "libclient/figures.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;

namespace {

ArenaStats arena_of_distinct_figures() {
  ArenaStats arena;
  arena.num_allocs = 101;
  arena.bytes_in_use = 2_B;
  arena.peak_bytes_in_use = 3_B;
  arena.largest_alloc_size = 4_B;
  arena.largest_free_block_bytes = 5_B;
  arena.pool_bytes = 6_B;
  arena.peak_pool_bytes = 7_B;
  arena.live_blocks = 8;
  arena.idle_bytes = 9_B;
  arena.cached_bytes = 10_B;
  arena.pending_bytes = 11_B;
  arena.fragmentation = 0.25;
  arena.arena_hits = 12;
  arena.arena_misses = 13;
  arena.synchronizes = 14;
  arena.growths = 15;
  arena.chunks_leased = 16;
  arena.chunks_moved = 17;
  arena.chunks_returned = 18;
  arena.magazine_hits = 19;
  arena.magazine_bytes = 20_B;
  arena.graph_pool_bytes = 21_B;
  arena.events = 22;
  return arena;
}

}  // namespace

TEST_CASE("the program's statistics have each figure of the arena in its own field") {
  const apportion_stats stats = stats_of(arena_of_distinct_figures(), 19, 20);
  CHECK(stats.struct_size == sizeof stats);
  CHECK(stats.num_allocs == 101);
  CHECK(stats.bytes_in_use == 2);
  CHECK(stats.peak_bytes_in_use == 3);
  CHECK(stats.largest_alloc_size == 4);
  CHECK(stats.largest_free_block_bytes == 5);
  CHECK(stats.pool_bytes == 6);
  CHECK(stats.bytes_reserved == 6);
  CHECK(stats.peak_pool_bytes == 7);
  CHECK(stats.peak_bytes_reserved == 7);
  CHECK(stats.live_blocks == 8);
  CHECK(stats.idle_bytes == 9);
  CHECK(stats.cached_bytes == 10);
  CHECK(stats.pending_bytes == 11);
  CHECK(stats.fragmentation == 0.25);
  CHECK(stats.arena_hits == 12);
  CHECK(stats.arena_misses == 13);
  CHECK(stats.synchronizes == 14);
  CHECK(stats.growths == 15);
  CHECK(stats.chunks_leased == 16);
  CHECK(stats.chunks_moved == 17);
  CHECK(stats.chunks_returned == 18);
  CHECK(stats.magazine_hits == 19);
  CHECK(stats.magazine_bytes == 20);
  CHECK(stats.graph_pool_bytes == 21);
  CHECK(stats.events == 22);
  CHECK(stats.bytes_limit == 19);
  CHECK(stats.bytes_reservable_limit == 20);
}

TEST_CASE("the report to the broker says the same as the program's statistics") {
  const ReportFigures report = report_of(arena_of_distinct_figures(), 19, 20);
  CHECK(report.bytes_in_use == 2);
  CHECK(report.bytes_cached == 10);
  CHECK(report.bytes_reserved == 6);
  CHECK(report.bytes_limit == 19);
  CHECK(report.bytes_reservable_limit == 20);
  CHECK(report.peak_bytes_in_use == 3);
  CHECK(report.peak_bytes_reserved == 7);
  CHECK(report.largest_alloc_size == 4);
  CHECK(report.largest_free_block_bytes == 5);
  CHECK(report.pool_bytes == 6);
  CHECK(report.peak_pool_bytes == 7);
  CHECK(report.bytes_idle == 9);
  CHECK(report.num_allocs == 101);
  CHECK(report.num_frees == 93);
  CHECK(report.fragmentation_ppm == 250'000);
  CHECK(report.hits_free_list == 12);
  CHECK(report.hits_magazine == 19);
  CHECK(report.hits_grown == 13);
}

TEST_CASE("what the program is told has each figure of its job, by whether it can give memory back") {
  auto welcome = wire::make<wire::Welcome>(1, 1);
  welcome.job.set("trainer");
  welcome.device_uuid.set("GPU-1");
  welcome.device_name.set("a device");
  welcome.chunk_bytes = 1;
  welcome.session_id = 2;
  const JobFigures job{.guarantee = 3,
                       .in_force = 4,
                       .covered = 5,
                       .limit = 6,
                       .used = 7,
                       .charged = 8,
                       .told_total = 9,
                       .told_free = 10,
                       .told_total_reclaimable = 11,
                       .told_free_reclaimable = 12};
  const apportion_info info = info_of(welcome, job, false);
  CHECK(info.struct_size == sizeof info);
  CHECK(info.chunk_bytes == 1);
  CHECK(info.session_id == 2);
  CHECK(info.guarantee_bytes == 3);
  CHECK(info.in_force_bytes == 4);
  CHECK(info.covered_bytes == 5);
  CHECK(info.limit_bytes == 6);
  CHECK(info.used_bytes == 7);
  CHECK(info.charged_bytes == 8);
  CHECK(info.total_bytes == 9);
  CHECK(info.free_bytes == 10);
  CHECK(info.simulated == 0);
  CHECK(std::string(info.job) == "trainer");
  CHECK(std::string(info.device_uuid) == "GPU-1");
  CHECK(std::string(info.device_name) == "a device");
  welcome.flags = wire::Welcome::kSimulated;
  const apportion_info other = info_of(welcome, job, true);
  CHECK(other.total_bytes == 11);
  CHECK(other.free_bytes == 12);
  CHECK(other.simulated == 1);
}
