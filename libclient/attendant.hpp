// The library's own thread of a session: it does what cannot wait for the program's next call.
//
// It blocks in one wait: on a wake-up, on the session's socket while no caller is in an exchange (BrokerLink
// puts it on the watch and takes it off), and on a time of its duties' choice, if they chose one. So a
// session at rest makes no context switch. All signals are blocked on it: no handler of the program's runs
// here (F48). It is not in a forked child (F06), where abandon_in_child() closes its descriptors. Never:
// knows what its duties are.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "shm/fd.hpp"
#include "shm/result.hpp"

namespace apportion {

class Attendant {
 public:
  using Clock = std::chrono::steady_clock;

  class Duties {
   public:
    virtual ~Duties() = default;
    // On the thread: after wake(), when the socket has something to read, and at the time that the last call
    // answered. Returns that time; none where only the other two matter. No exception.
    virtual std::optional<Clock::time_point> attend() noexcept = 0;
  };

  // `duties` outlives it. Nothing is attended before start().
  explicit Attendant(Duties& duties) : duties_(duties) {}
  ~Attendant() { stop(); }
  Attendant(const Attendant&) = delete;
  Attendant& operator=(const Attendant&) = delete;

  // Errors: system (no descriptors, no thread). May be called again after stop().
  [[nodiscard]] Status start();
  // Ends the thread, after the duty it is at.
  void stop();
  // Has the duties called soon; several before that are one. Thread-safe, async-signal-safe; a system call.
  void wake() noexcept;
  // Where a socket is put on the watch: an epoll descriptor. After start().
  [[nodiscard]] int watch() const { return watch_.get(); }

  // In a forked child; then nothing else is called.
  void abandon_in_child() noexcept;

 private:
  static void* run(void* self);
  void loop();

  Duties& duties_;
  Fd watch_;
  Fd wake_;
  std::atomic<bool> stop_{false};
  bool running_ = false;
  pthread_t thread_{};
};

}  // namespace apportion
