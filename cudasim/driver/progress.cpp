#include "cudasim/driver/progress.hpp"

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "cudasim/driver/streams.hpp"

namespace cudasim {
namespace {

using Clock = std::chrono::steady_clock;

class Progress {
 public:
  // Leaked: its thread ends with the process.
  static Progress& get() {
    static auto* progress = new Progress;
    return *progress;
  }

  void add(const Point& point) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({point, Clock::now() + std::chrono::milliseconds(kPatienceMs)});
    if (!std::exchange(started_, true)) start();
    more_.notify_one();
  }

 private:
  struct Waiting {
    Point point;
    Clock::time_point due;
  };

  // The program's signals are not for this thread.
  void start() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { run(); }).detach();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      more_.wait(lock, [this] { return !waiting_.empty(); });
      const Waiting next = waiting_.front();
      if (!Streams::get().done(next.point) && more_.wait_until(lock, next.due, [] { return false; }))
        continue;
      waiting_.pop_front();
      lock.unlock();
      (void)Streams::get().wait(next.point);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Waiting> waiting_;
  bool started_ = false;
};

}  // namespace

void run_eventually(const Point& point) {
  Progress::get().add(point);
}

}  // namespace cudasim
