// The broker's one strand: readiness of descriptors, timers, signals, and work handed over from other
// threads.
//
// Promises: every callback runs on the thread in run(), one at a time; a Watch or Timer that is destroyed
// never calls again. Never: owns the descriptors it watches. post() and stop() are thread-safe, all else is
// the strand's. Asio stays in the .cpp: it is the heaviest header here.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace apportion {

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Calls until destroyed. The descriptor must stay open as long.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  [[nodiscard]] std::unique_ptr<Watch> on_readable(int fd, std::function<void()> callback);
  [[nodiscard]] std::unique_ptr<Watch> on_writable(int fd, std::function<void()> callback);

  // Once, unless destroyed before. CLOCK_MONOTONIC: a jump of the clock moves nothing (F46).
  [[nodiscard]] std::unique_ptr<Watch> after(std::chrono::nanoseconds delay, std::function<void()> callback);
  // SIGTERM and SIGINT.
  void on_stop_signal(std::function<void(int signal)> callback);

  void post(std::function<void()> callback);
  void run();
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace apportion
