// Memory pools: what cuMemAllocAsync hands out and cuMemFreeAsync takes back, in stream order.
//
// A block freed on a stream can be handed out again on that stream at once, elsewhere when the free has run.
// Freed blocks stay with the pool, and count as used of the device, until a synchronisation finds more than
// the release threshold, a trim, or the device is full. Thread-safe. Never: hands a block to a stream that
// may still race.
#pragma once
#include "cudasim/driver/streams.hpp"

namespace cudasim {

class Pool {
 public:
  Pool(int device, bool owned) : device_(device), owned_(owned) {}

  CUresult allocate(Context& context, u64 bytes, const std::shared_ptr<Stream>& stream, CUdeviceptr* out);
  // Gives unused blocks back until `keep_bytes` of the device are left with the pool.
  void trim(u64 keep_bytes);
  void at_synchronise() { trim(threshold_.load()); }

  CUresult set(CUmemPool_attribute attribute, const void* value);
  CUresult get(CUmemPool_attribute attribute, void* value);
  int device() const { return device_; }
  // True: made by cuMemPoolCreate; false: the device's default pool.
  bool owned() const { return owned_; }

 private:
  friend class Pools;
  struct Block {
    u64 bytes;
    Context* context;
    std::shared_ptr<Stream> freed_on;  // null while in use or when its free has run
    u64 ticket = 0;                    // which free this is
    bool used = true;
  };
  bool reuse(u64 bytes, const std::shared_ptr<Stream>& stream, CUdeviceptr* out);
  void take(CUdeviceptr address, u64 bytes, Context& context);
  void context_gone(const Context& context);
  bool holds(CUdeviceptr address);
  u64 begin_free(CUdeviceptr address, const std::shared_ptr<Stream>& stream);
  void end_free(CUdeviceptr address, u64 ticket);

  const int device_;
  const bool owned_;
  std::mutex mutex_;
  std::map<CUdeviceptr, Block> blocks_;
  u64 tickets_ = 0, reserved_ = 0, reserved_high_ = 0, used_ = 0, used_high_ = 0;
  int reuse_flags_[3] = {1, 1, 1};
  std::atomic<u64> threshold_{0};
};

// The pools of this process.
class Pools {
 public:
  static Pools& get();

  CUmemoryPool add(int device);
  CUmemoryPool default_of(int device);
  CUmemoryPool current_of(int device);
  CUresult set_current(int device, CUmemoryPool pool);
  // Blocks in use keep it alive.
  CUresult remove(CUmemoryPool pool);
  std::shared_ptr<Pool> find(CUmemoryPool pool);

  // Gives `address` back when `stream` gets there. CUDA_ERROR_INVALID_VALUE: not of a pool.
  CUresult free_on(CUdeviceptr address, const std::shared_ptr<Stream>& stream);
  // cuMemFree of such an address: at once; false: not of a pool.
  bool free_now(CUdeviceptr address);

  void at_synchronise();
  // What was allocated in a context ends with it.
  void context_gone(const Context& context);

 private:
  std::shared_ptr<Pool> holder(CUdeviceptr address);
  std::vector<std::shared_ptr<Pool>> snapshot();

  std::mutex mutex_;
  std::map<CUmemoryPool, std::shared_ptr<Pool>> pools_;
  std::vector<std::shared_ptr<Pool>> leaving_;  // destroyed, with blocks in use
  std::map<int, CUmemoryPool> default_, current_;
};

}  // namespace cudasim
