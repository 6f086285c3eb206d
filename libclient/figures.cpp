#include "libclient/figures.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace apportion {
namespace {

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const std::size_t length = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace

Told told_of(const JobFigures& job, bool reclaimable) {
  return reclaimable ? Told{job.told_total_reclaimable, job.told_free_reclaimable}
                     : Told{job.told_total, job.told_free};
}

apportion_info info_of(const wire::Welcome& welcome, const JobFigures& job, bool reclaimable) {
  const Told told = told_of(job, reclaimable);
  apportion_info info = {};
  info.struct_size = sizeof info;
  info.total_bytes = told.total;
  info.free_bytes = told.free;
  info.guarantee_bytes = job.guarantee;
  info.in_force_bytes = job.in_force;
  info.covered_bytes = job.covered;
  info.limit_bytes = job.limit;
  info.used_bytes = job.used;
  info.charged_bytes = job.charged;
  info.chunk_bytes = welcome.chunk_bytes;
  info.session_id = welcome.session_id;
  info.simulated = (welcome.flags & wire::Welcome::kSimulated) != 0 ? 1 : 0;
  info.transport =
      (welcome.flags & wire::Welcome::kSlabs) != 0 ? APPORTION_TRANSPORT_IPC : APPORTION_TRANSPORT_VMM;
  copy_text(info.job, welcome.job.view());
  copy_text(info.device_uuid, welcome.device_uuid.view());
  copy_text(info.device_name, welcome.device_name.view());
  return info;
}

apportion_stats stats_of(const ArenaStats& arena, std::uint64_t limit, std::uint64_t reservable) {
  apportion_stats stats = {};
  stats.struct_size = sizeof stats;
  stats.num_allocs = arena.num_allocs;
  stats.bytes_in_use = arena.bytes_in_use.value;
  stats.peak_bytes_in_use = arena.peak_bytes_in_use.value;
  stats.largest_alloc_size = arena.largest_alloc_size.value;
  stats.bytes_limit = limit;
  stats.bytes_reserved = arena.pool_bytes.value;
  stats.peak_bytes_reserved = arena.peak_pool_bytes.value;
  stats.bytes_reservable_limit = reservable;
  stats.largest_free_block_bytes = arena.largest_free_block_bytes.value;
  stats.pool_bytes = arena.pool_bytes.value;
  stats.peak_pool_bytes = arena.peak_pool_bytes.value;
  stats.live_blocks = arena.live_blocks;
  stats.cached_bytes = arena.cached_bytes.value;
  stats.idle_bytes = arena.idle_bytes.value;
  stats.pending_bytes = arena.pending_bytes.value;
  stats.fragmentation = arena.fragmentation;
  stats.arena_hits = arena.arena_hits;
  stats.arena_misses = arena.arena_misses;
  stats.synchronizes = arena.synchronizes;
  stats.growths = arena.growths;
  stats.chunks_leased = arena.chunks_leased;
  stats.chunks_moved = arena.chunks_moved;
  stats.chunks_returned = arena.chunks_returned;
  stats.magazine_hits = arena.magazine_hits;
  stats.magazine_bytes = arena.magazine_bytes.value;
  stats.events = arena.events;
  stats.graph_pool_bytes = arena.graph_pool_bytes.value;
  return stats;
}

ReportFigures report_of(const ArenaStats& arena, std::uint64_t limit, std::uint64_t reservable) {
  const apportion_stats stats = stats_of(arena, limit, reservable);
  ReportFigures report;
  report.bytes_in_use = stats.bytes_in_use;
  report.bytes_cached = stats.cached_bytes;
  report.bytes_reserved = stats.bytes_reserved;
  report.bytes_limit = stats.bytes_limit;
  report.bytes_reservable_limit = stats.bytes_reservable_limit;
  report.peak_bytes_in_use = stats.peak_bytes_in_use;
  report.peak_bytes_reserved = stats.peak_bytes_reserved;
  report.largest_alloc_size = stats.largest_alloc_size;
  report.largest_free_block_bytes = stats.largest_free_block_bytes;
  report.pool_bytes = stats.pool_bytes;
  report.peak_pool_bytes = stats.peak_pool_bytes;
  report.bytes_idle = stats.idle_bytes;
  report.num_allocs = stats.num_allocs;
  report.num_frees = stats.num_allocs - stats.live_blocks;
  report.fragmentation_ppm = static_cast<std::uint64_t>(stats.fragmentation * 1e6);
  report.hits_magazine = stats.magazine_hits;
  report.hits_free_list = stats.arena_hits;
  report.hits_grown = stats.arena_misses;
  return report;
}

}  // namespace apportion
