#include "libclient/lease_source.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "libclient/host_memory.hpp"

namespace apportion {

Result<Bytes> LeaseSource::lease(Address address, Bytes min, Bytes want, std::uint32_t flags) {
  lost_ = false;
  const auto take = [&](Bytes done, std::span<const wire::ChunkEntry> entries,
                        std::vector<Fd> fds) -> Status {
    Bytes bytes;
    for (const wire::ChunkEntry& entry : entries) {
      const bool whole =
          (flags & wire::Request::kExact) != 0 ? entry.bytes == want.value : entry.bytes == chunk_.value;
      // A hostile or broken broker must not make us map beyond what the arena made room for.
      if (!whole || saturating_sub(want, done + bytes).value < entry.bytes) {
        return Error{Errc::protocol, "the broker granted chunks of another size than was asked for"};
      }
      bytes += Bytes{entry.bytes};
    }
    const Address at = address + done.value;
    std::map<Address, Lease> made;  // before anything is mapped: the host may have no memory for it (F31)
    Address next = at;
    for (const wire::ChunkEntry& entry : entries) {
      made.emplace(next, Lease{entry.chunk_id, Bytes{entry.bytes}});
      next += entry.bytes;
    }
    if (Status mapped = shielded([&] { return mapper_.map(at, entries, std::move(fds)); }); !mapped) {
      lost_ = lost_ || mapper_.lost();
      return mapped;
    }
    leases_.merge(made);
    APPORTION_CHECK(made.empty());
    return Done{};
  };
  Result<BrokerLink::Granted> granted = broker_.request(min, want, flags, take);
  if (!granted) return granted.error();
  if (granted->taken >= min) return granted->taken;
  const bool lost = lost_;
  if (granted->taken.value != 0 && !give_back(address, granted->taken)) lost_ = true;
  lost_ = lost_ || lost;
  if (granted->error) return *granted->error;
  return Error{Errc::protocol, "the broker granted less than was asked for"};
}

// Never used, so there is no GPU to wait for. Takes no host memory: that may be why (F31).
Status LeaseSource::give_back(Address address, Bytes bytes) {
  if (Status unmapped = mapper_.unmap(address, bytes); !unmapped) return unmapped;
  auto lease = leases_.lower_bound(address);
  while (lease != leases_.end() && lease->first < address + bytes.value) {
    std::array<std::uint64_t, wire::kMaxIds> ids;
    std::size_t count = 0;
    for (; count < ids.size() && lease != leases_.end() && lease->first < address + bytes.value; ++count) {
      ids[count] = lease->second.id;
      lease = leases_.erase(lease);
    }
    tell_released(std::span(ids).first(count));
  }
  return Done{};
}

Result<std::uint32_t> LeaseSource::map(Address address, std::uint32_t min, std::uint32_t want) {
  const Result<Bytes> taken = lease(address, chunk_ * min, chunk_ * want, 0);
  if (!taken) return taken.error();
  return static_cast<std::uint32_t>(*taken / chunk_);
}

Status LeaseSource::map_exact(Address address, Bytes bytes) {
  const Result<Bytes> taken = lease(address, bytes, bytes, wire::Request::kExact);
  if (!taken) return taken.error();
  return Done{};
}

Status LeaseSource::move(std::span<const Address> from, Address to) {
  lost_ = false;
  Status moved = mapper_.move(from, to, chunk_);
  lost_ = mapper_.lost();
  if (!moved) return moved;
  for (std::size_t index = 0; index < from.size(); ++index) {
    auto node = leases_.extract(from[index]);
    APPORTION_CHECK(!node.empty());
    node.key() = to + index * chunk_.value;
    leases_.insert(std::move(node));
  }
  return Done{};
}

ChunkSource::Returned LeaseSource::unmap(std::span<const Address> chunks) {
  lost_ = false;
  Returned returned;
  std::vector<std::uint64_t> ids;
  ids.reserve(chunks.size());  // from here on nothing takes host memory: what is unmapped is told (F31)
  const auto unmap_next = [&](std::size_t count) {
    Status unmapped = mapper_.unmap(chunks[returned.count], chunk_ * count);
    if (!unmapped) return unmapped;
    for (; count != 0; --count, ++returned.count) {
      const auto lease = leases_.find(chunks[returned.count]);
      APPORTION_CHECK(lease != leases_.end());
      ids.push_back(lease->second.id);
      leases_.erase(lease);
    }
    return unmapped;
  };
  while (returned.count < chunks.size() && !returned.error) {
    // One call for a run of chunks side by side; where it fails, one by one: which of them it left mapped is
    // not known, and what cannot be unmapped alone is lost with the rest of the run (F34).
    std::size_t end = returned.count + 1;
    while (end < chunks.size() && chunks[end] == chunks[end - 1] + chunk_.value)
      ++end;
    Status unmapped = unmap_next(end - returned.count);
    if (!unmapped && mapper_.lost() && end - returned.count > 1) {
      do {
        unmapped = unmap_next(1);
      } while (unmapped && returned.count < end);
    }
    if (!unmapped) {
      returned.error = copy_of(unmapped.error());
      if (mapper_.lost()) returned.lost = end - returned.count;
    }
  }
  tell_released(ids);
  return returned;
}

// Without an answer the broker books them when the session ends: over-counted, never under-counted.
void LeaseSource::tell_released(std::span<const std::uint64_t> ids) noexcept {
  try {
    static_cast<void>(broker_.release(ids).ok());
  } catch (const std::bad_alloc&) {  // F31: they are unmapped, and the arena must hear so
  }
}

Status LeaseSource::unmap_exact(Address address, Bytes bytes) {
  lost_ = false;
  const auto lease = leases_.find(address);
  APPORTION_CHECK(lease != leases_.end() && lease->second.bytes == bytes);
  if (Status unmapped = mapper_.unmap(address, bytes); !unmapped) {
    lost_ = mapper_.lost();
    return unmapped;
  }
  const std::uint64_t id = lease->second.id;
  leases_.erase(lease);
  tell_released(std::span(&id, 1));
  return Done{};
}

Status LeaseSource::unmap_all() {
  Status first = Done{};
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const Address begin = lease->first;
    Address end = begin;
    for (; lease != leases_.end() && lease->first == end; ++lease)
      end += lease->second.bytes.value;
    if (Status unmapped = mapper_.unmap(begin, Bytes{end - begin}); !unmapped && first.ok()) first = unmapped;
  }
  leases_.clear();
  return first;
}

}  // namespace apportion
