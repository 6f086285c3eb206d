#include "cudasim/driver/pool.hpp"

#include <algorithm>

#include "cudasim/driver/hooks.hpp"
#include "cudasim/driver/linear.hpp"

namespace cudasim {
namespace {

// What a block of `bytes` takes of the device: as linear memory does (linear.hpp).
u64 rounded(u64 bytes) {
  const u64 unit = bytes < kSmallLinear ? kLinearAlignment : kGranularity;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

bool Pool::reuse(u64 bytes, const std::shared_ptr<Stream>& stream, CUdeviceptr* out) {
  const std::lock_guard lock(mutex_);
  auto best = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    const Block& block = it->second;
    const bool safe = !block.used && (block.freed_on == nullptr || block.freed_on == stream);
    if (!safe || block.bytes < bytes || block.bytes > 2 * bytes) continue;
    if (best == blocks_.end() || block.bytes < best->second.bytes) best = it;
  }
  if (best == blocks_.end()) return false;
  best->second.freed_on = nullptr;
  best->second.ticket = 0;
  best->second.used = true;
  used_ += best->second.bytes;
  used_high_ = std::max(used_high_, used_);
  *out = best->first;
  return true;
}

void Pool::take(CUdeviceptr address, u64 bytes, Context& context) {
  const std::lock_guard lock(mutex_);
  blocks_.insert_or_assign(address, Block{.bytes = bytes, .context = &context, .freed_on = nullptr});
  reserved_ += bytes;
  used_ += bytes;
  reserved_high_ = std::max(reserved_high_, reserved_);
  used_high_ = std::max(used_high_, used_);
}

CUresult Pool::allocate(Context& context, u64 bytes, const std::shared_ptr<Stream>& stream,
                        CUdeviceptr* out) {
  if (bytes == 0 || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bytes = rounded(bytes);
  if (reuse(bytes, stream, out)) return CUDA_SUCCESS;
  CUdeviceptr address = 0;
  CUresult result = linear_allocate(context, bytes, RangeKind::kAsync, &address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Full: first what pools keep for nobody, then what frees under way would bring.
    Pools::get().at_synchronise();
    trim(0);
    result = linear_allocate(context, bytes, RangeKind::kAsync, &address);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    (void)Streams::get().wait_all(context);
    trim(0);
    result = linear_allocate(context, bytes, RangeKind::kAsync, &address);
  }
  if (result != CUDA_SUCCESS) return result;
  take(address, bytes, context);
  *out = address;
  return CUDA_SUCCESS;
}

void Pool::trim(u64 keep_bytes) {
  std::vector<Use> unused;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = blocks_.begin(); it != blocks_.end() && reserved_ > keep_bytes;) {
      if (it->second.used || it->second.freed_on != nullptr) {
        ++it;
        continue;
      }
      unused.push_back({it->first, it->second.bytes});
      reserved_ -= it->second.bytes;
      it = blocks_.erase(it);
    }
  }
  for (const auto& [address, bytes] : unused) {
    check_pending(address, bytes, "pool block freed under pending work");
    (void)linear_free(address, RangeKind::kAsync);
  }
}

void Pool::context_gone(const Context& context) {
  std::vector<CUdeviceptr> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, block] : blocks_) {
      if (block.context == &context) gone.push_back(address);
    }
    for (const CUdeviceptr address : gone) {
      const auto found = blocks_.find(address);
      reserved_ -= found->second.bytes;
      if (found->second.used) used_ -= found->second.bytes;
      blocks_.erase(found);
    }
  }
  for (const CUdeviceptr address : gone)
    (void)linear_free(address, RangeKind::kAsync);
}

bool Pool::holds(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  return found != blocks_.end() && found->second.used;
}

u64 Pool::begin_free(CUdeviceptr address, const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_.at(address);
  block.used = false;
  block.freed_on = stream;
  block.ticket = ++tickets_;
  used_ -= block.bytes;
  return block.ticket;
}

void Pool::end_free(CUdeviceptr address, u64 ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  // Handed out again on the same stream meanwhile: then this free has nothing left to do.
  if (found != blocks_.end() && found->second.ticket == ticket) found->second.freed_on = nullptr;
}

CUresult Pool::set(CUmemPool_attribute attribute, const void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_flags_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
          *static_cast<const int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_high_ : reserved_high_) =
          attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_ : reserved_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Pool::get(CUmemPool_attribute attribute, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  auto& number = *static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = reuse_flags_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      number = threshold_.load();
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      number = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      number = reserved_high_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      number = used_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      number = used_high_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

Pools& Pools::get() {
  static auto* pools = new Pools;
  return *pools;
}

CUmemoryPool Pools::add(int device) {
  const std::lock_guard lock(mutex_);
  auto pool = std::make_shared<Pool>(device, true);
  const auto handle = reinterpret_cast<CUmemoryPool>(pool.get());
  pools_.emplace(handle, std::move(pool));
  return handle;
}

CUmemoryPool Pools::default_of(int device) {
  const std::lock_guard lock(mutex_);
  CUmemoryPool& handle = default_[device];
  if (handle == nullptr) {
    auto pool = std::make_shared<Pool>(device, false);
    handle = reinterpret_cast<CUmemoryPool>(pool.get());
    pools_.emplace(handle, std::move(pool));
  }
  return handle;
}

CUmemoryPool Pools::current_of(int device) {
  const CUmemoryPool fallback = default_of(device);
  const std::lock_guard lock(mutex_);
  const auto found = current_.find(device);
  return found == current_.end() ? fallback : found->second;
}

CUresult Pools::set_current(int device, CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end() || found->second->device() != device) return CUDA_ERROR_INVALID_VALUE;
  current_[device] = handle;
  return CUDA_SUCCESS;
}

CUresult Pools::remove(CUmemoryPool handle) {
  std::shared_ptr<Pool> pool;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(handle);
    if (found == pools_.end() || !found->second->owned()) return CUDA_ERROR_INVALID_VALUE;
    pool = found->second;
    pools_.erase(found);
    std::erase_if(current_, [handle](const auto& entry) { return entry.second == handle; });
    leaving_.push_back(pool);
  }
  pool->threshold_ = 0;
  at_synchronise();
  return CUDA_SUCCESS;
}

std::shared_ptr<Pool> Pools::find(CUmemoryPool handle) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(handle);
  return found == pools_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Pool>> Pools::snapshot() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Pool>> all = leaving_;
  for (const auto& [handle, pool] : pools_)
    all.push_back(pool);
  return all;
}

std::shared_ptr<Pool> Pools::holder(CUdeviceptr address) {
  for (auto& pool : snapshot()) {
    if (pool->holds(address)) return pool;
  }
  return nullptr;
}

CUresult Pools::free_on(CUdeviceptr address, const std::shared_ptr<Stream>& stream) {
  const auto pool = holder(address);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const u64 ticket = pool->begin_free(address, stream);
  (void)Streams::get().enqueue(stream, {.what = "cuMemFreeAsync", .effect = [pool, address, ticket] {
                                          pool->end_free(address, ticket);
                                          return CUDA_SUCCESS;
                                        }});
  return CUDA_SUCCESS;
}

bool Pools::free_now(CUdeviceptr address) {
  const auto pool = holder(address);
  if (pool == nullptr) return false;
  pool->end_free(address, pool->begin_free(address, nullptr));
  pool->at_synchronise();
  return true;
}

void Pools::context_gone(const Context& context) {
  for (auto& pool : snapshot())
    pool->context_gone(context);
}

void Pools::at_synchronise() {
  for (auto& pool : snapshot())
    pool->at_synchronise();
  const std::lock_guard lock(mutex_);
  std::erase_if(leaving_, [](const auto& pool) {
    const std::lock_guard pool_lock(pool->mutex_);
    return pool->blocks_.empty();
  });
}

}  // namespace cudasim
