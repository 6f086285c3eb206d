#include "broker/pool.hpp"

#include <pthread.h>

#include <chrono>
#include <csignal>

#include "shm/fault_point.hpp"

namespace apportion {

Pool::Pool(const Device& device, const DeviceMonitor& monitor, Post post)
    : monitor_(monitor), maker_(device), post_(std::move(post)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the strand's
  worker_ = std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  some_.notify_one();
  worker_.join();
}

void Pool::make(ChunkId id, Bytes bytes, std::function<void(Status)> done) {
  push(true, [this, id, bytes, done = std::move(done)] {
    APPORTION_FAULT_POINT("pool.before_make");
    Result<Chunk> made = maker_.make(bytes);
    Status status = Done{};
    if (made.ok()) {
      chunks_.insert_or_assign(id, *std::move(made));
    } else {
      status = made.error();
    }
    APPORTION_FAULT_POINT("pool.after_make");
    post_([done, status = std::move(status)] { done(status); });
  });
}

void Pool::unmake(ChunkId id, std::function<void(Status)> done) {
  push(false, [this, id, done = std::move(done)] {
    APPORTION_FAULT_POINT("pool.before_unmake");
    Status status = Done{};
    const auto found = chunks_.find(id);
    if (found != chunks_.end()) {
      status = found->second.release();
      if (status.ok()) chunks_.erase(found);
    }
    APPORTION_FAULT_POINT("pool.after_unmake");
    post_([done, status = std::move(status)] { done(status); });
  });
}

void Pool::export_fds(std::vector<ChunkId> ids, std::function<void(Result<std::vector<Fd>>)> done) {
  push(true, [this, ids = std::move(ids), done = std::move(done)] {
    auto fds = std::make_shared<Result<std::vector<Fd>>>(export_now(ids));
    post_([done, fds] { done(std::move(*fds)); });
  });
}

void Pool::read_room(Labels labels, std::function<void(Room)> done) {
  push(true, [this, labels, done = std::move(done)] {
    const auto before = std::chrono::steady_clock::now().time_since_epoch();
    auto room = std::make_shared<Room>(Room{monitor_.memory(), {}, {}, 0});
    room->read_at_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(before).count();
    if (auto processes = monitor_.processes(); processes.ok()) room->processes = *std::move(processes);
    if (labels == Labels::yes) {
      for (const DeviceProcess& process : room->processes)
        room->labels.push_back(label_of(process.pid));
    }
    post_([done, room] { done(std::move(*room)); });
  });
}

Result<std::vector<Fd>> Pool::export_now(std::span<const ChunkId> ids) {
  std::vector<Fd> fds;
  fds.reserve(ids.size());
  for (const ChunkId id : ids) {
    const auto found = chunks_.find(id);
    if (found == chunks_.end()) return Error{Errc::not_found, "the chunk to export is not in the pool"};
    Result<Fd> fd = found->second.export_fd();
    if (!fd.ok()) return fd.error();
    fds.push_back(*std::move(fd));
  }
  return fds;
}

void Pool::push(bool urgent, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    (urgent ? urgent_ : later_).push_back(std::move(job));
  }
  some_.notify_one();
}

void Pool::work() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    some_.wait(lock, [this] { return stopping_ || !urgent_.empty() || !later_.empty(); });
    if (stopping_) return;
    std::deque<std::function<void()>>& queue = urgent_.empty() ? later_ : urgent_;
    const std::function<void()> job = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace apportion
