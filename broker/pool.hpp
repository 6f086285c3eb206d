// The broker's hands on the device: one thread that makes, exports and releases chunks and reads the device's
// memory.
//
// Owns: every physical allocation of the pool. Promises: no driver call runs on the caller's thread; jobs of
// one kind run in the order they were given; making and exporting, which somebody waits for, go before
// releasing (K2: a waiter is not delayed by another's release). Answers are handed to `post`. Never: decides
// which chunk, or makes a context.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "broker/ids.hpp"
#include "broker/process_label.hpp"
#include "gpu/chunk.hpp"
#include "gpu/device_monitor.hpp"
#include "shm/fd.hpp"

namespace apportion {

class Pool {
 public:
  using Post = std::function<void(std::function<void()>)>;  // runs it on the strand; thread-safe

  struct Room {
    Result<DeviceMemory> memory;
    std::vector<DeviceProcess> processes;  // empty where NVML does not say
    std::vector<ProcessLabel> labels;      // of each, where asked for
    std::int64_t read_at_ns = 0;           // CLOCK_MONOTONIC, before the reading
  };
  enum class Labels { no, yes };

  Pool(const Device& device, const DeviceMonitor& monitor, Post post);
  ~Pool();  // ends the thread; chunks are released
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void make(ChunkId id, Bytes bytes, std::function<void(Status)> done);
  void unmake(ChunkId id, std::function<void(Status)> done);
  // One fd each, in order; all or none.
  void export_fds(std::vector<ChunkId> ids, std::function<void(Result<std::vector<Fd>>)> done);
  void read_room(Labels labels, std::function<void(Room)> done);

 private:
  void push(bool urgent, std::function<void()> job);
  void work() noexcept;  // F31: out of host memory is the end of the process
  Result<std::vector<Fd>> export_now(std::span<const ChunkId> ids);

  const DeviceMonitor& monitor_;
  ChunkMaker maker_;
  Post post_;
  std::unordered_map<ChunkId, Chunk> chunks_;  // the worker's

  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<std::function<void()>> urgent_;
  std::deque<std::function<void()>> later_;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace apportion
