// The broker's one strand: readiness of descriptors, timers, signals, and work handed over from other
// threads.
//
// Promises: every callback runs on the thread in run(), one at a time; a Watch that is destroyed never calls
// again, and may be destroyed in its own callback. Readiness is a level: a callback that leaves something
// unread is called again, after the others had their turn. Never: owns the descriptors it watches; lets an
// exception out of run() (F31: the process ends, and the next broker takes over). post() and stop() are
// thread-safe, all else is the strand's. Asio stays in the .cpp: it is the heaviest header here.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>

namespace apportion {

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Calls until destroyed. The descriptor must stay open as long. Nothing where the system has no room for
  // one more watch (F30, F31).
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  [[nodiscard]] std::unique_ptr<Watch> on_readable(int fd, std::function<void()> callback);
  // May be beside on_readable of the same descriptor; takes a descriptor of its own meanwhile.
  [[nodiscard]] std::unique_ptr<Watch> on_writable(int fd, std::function<void()> callback);

  // Once, unless destroyed before. CLOCK_MONOTONIC: a jump of the clock moves nothing (F46).
  [[nodiscard]] std::unique_ptr<Watch> after(std::chrono::nanoseconds delay, std::function<void()> callback);
  // Each time one of `signals` arrives. One call per Loop.
  void on_signals(std::initializer_list<int> signals, std::function<void(int signal)> callback);

  void post(std::function<void()> callback);
  void run() noexcept;
  // For tests: runs what is ready, or the first thing to get ready within `most`.
  void turn(std::chrono::milliseconds most) noexcept;
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apportion
