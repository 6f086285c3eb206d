#include "libclient/slab_source.hpp"

#include <algorithm>
#include <new>

#include "shm/fault_point.hpp"

namespace apportion {

namespace {

bool none_left(const Error& error) {
  return error.code == Errc::quota || error.code == Errc::out_of_memory;
}

}  // namespace

// What unmap_all() has not closed, or was not asked to, the GPU may still be using.
SlabSource::~SlabSource() {
  for (auto& [name, lease] : leases_)
    lease.import.leave_open();
}

Status SlabSource::open(Address name, Bytes bytes, bool ahead) {
  lost_ = false;
  const auto [lease, added] = leases_.try_emplace(name);  // first: the host may have no memory for it (F31)
  APPORTION_CHECK(added);
  Status opened = Done{};
  try {
    opened = broker_.request_slab(
        bytes, ahead, [&](const wire::SlabPlace& granted) { return take(lease, granted, bytes); });
  } catch (const std::bad_alloc&) {
    leases_.erase(lease);
    throw;
  }
  if (!opened) leases_.erase(lease);
  return opened;
}

Status SlabSource::take(Leases::iterator lease, const wire::SlabPlace& granted, Bytes bytes) {
  // A hostile or broken broker must not make us hand out more than there is.
  if (granted.bytes != bytes.value) {
    return Error{Errc::protocol, "the broker granted a slab of another size than was asked for"};
  }
  const Result<SlabHandle> handle = job_.slab(granted.place, granted.lease_id);
  if (!handle) return handle.error();
  return context_.run_at_home([&]() -> Status {
    Result<SlabImport> import = SlabImport::open(device_, handle->handle, bytes);
    if (!import) {
      Error error = import.error();
      error.message =
          "a slab of the broker could not be opened: " + error.message +
          "; a slab opens only for the broker's own user, in its PID namespace (transport = \"ipc\")";
      return error;
    }
    APPORTION_FAULT_POINT("client.before_map");
    // On an error the import closes itself, here, in its context.
    if (Status noted = addresses_.add(lease->first, import->address(), bytes); !noted) return noted;
    lease->second.id = granted.lease_id;
    lease->second.import = *std::move(import);
    return Done{};
  });
}

Status SlabSource::close(Leases::iterator lease) {
  SlabImport& import = lease->second.import;
  const Address real = import.address();
  const Bytes bytes = import.size();
  if (Status closed = context_.run_at_home([&] { return import.close(); }); !closed) return closed;
  addresses_.remove(lease->first, real, bytes);
  return Done{};
}

Result<std::uint32_t> SlabSource::map(Address address, std::uint32_t min, std::uint32_t want) {
  // More than is needed only where that costs nobody anything.
  Status opened = open(address, kSlabGranularity * want, min != want);
  if (opened) return want;
  if (min == want || !none_left(opened.error())) return opened.error();
  if (opened = open(address, kSlabGranularity * min, false); !opened) return opened.error();
  return min;
}

Status SlabSource::move(std::span<const Address>, Address) {
  lost_ = false;
  return Error{Errc::invalid, "slabs cannot be moved"};
}

ChunkSource::Returned SlabSource::unmap(std::span<const Address> chunks) {
  lost_ = false;
  Returned returned;
  std::vector<std::uint64_t> ids;
  ids.reserve(leases_.size());
  while (returned.count < chunks.size()) {
    const auto lease = leases_.find(chunks[returned.count]);
    APPORTION_CHECK(lease != leases_.end());
    const std::size_t slots = lease->second.import.size() / kSlabGranularity;
    APPORTION_CHECK(slots <= chunks.size() - returned.count);
    if (Status closed = close(lease); !closed) {
      lost_ = true;  // F34: whether it is open still is not known
      returned.error = closed.error();
      returned.lost = slots;
      break;
    }
    if (!lease->second.gone) ids.push_back(lease->second.id);
    leases_.erase(lease);
    returned.count += slots;
  }
  tell_released(ids);
  return returned;
}

Status SlabSource::unmap_exact(Address address, Bytes bytes) {
  lost_ = false;
  const auto lease = leases_.find(address);
  APPORTION_CHECK(lease != leases_.end() && lease->second.import.size() == bytes);
  if (Status closed = close(lease); !closed) {
    lost_ = true;
    return closed;
  }
  const std::uint64_t id = lease->second.id;
  const bool gone = lease->second.gone;
  leases_.erase(lease);
  if (!gone) tell_released(std::span(&id, 1));
  return Done{};
}

// Without an answer the broker books them when the session ends: over-counted, never under-counted.
void SlabSource::tell_released(std::span<const std::uint64_t> ids) noexcept {
  try {
    static_cast<void>(broker_.release(ids).ok());
  } catch (const std::bad_alloc&) {  // F31: they are closed, and the arena must hear so
  }
}

Status SlabSource::synchronize(Stream stream) {
  lost_ = false;
  if (stream == kNoStream) return context_.synchronize({0});
  return context_.synchronize({0, stream});
}

std::vector<Address> SlabSource::take_gone() {
  std::vector<Address> names;
  names.reserve(leases_.size());  // before the ids are taken: they are said once
  auto [ids, all] = broker_.take_lost_slabs();
  std::sort(ids.begin(), ids.end());
  for (auto& [name, lease] : leases_) {
    if (lease.gone || (!all && !std::binary_search(ids.begin(), ids.end(), lease.id))) continue;
    lease.gone = true;
    names.push_back(name);
  }
  return names;
}

Status SlabSource::unmap_all() {
  Status first = Done{};
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (Status closed = close(lease); !closed) {
      if (first.ok()) first = closed;
      ++lease;  // left open at the end
    } else {
      lease = leases_.erase(lease);
    }
  }
  return first;
}

}  // namespace apportion
