// Named places where a test can make this process die, stop or abort.
//
//   APPORTION_FAULT_POINT("grant.before_send");
//   APPORTION_FAULT="grant.before_send:kill:3,journal.after_store:stop"   (name:kill|stop|abort[:nth])
//
// nth counts from 1 (the default) over the whole process; the point acts once. Promises: without
// APPORTION_FAULT_POINTS nothing of it is compiled; with it, an unarmed point costs one relaxed load.
// A spec that cannot be read ends the process with one line: a kill test that kills nothing proves nothing.
#pragma once

#ifdef APPORTION_FAULT_POINTS

#include <atomic>
#include <string_view>

namespace apportion::fault {

extern std::atomic<bool> armed;

// Reads a spec as APPORTION_FAULT has it, in place of the former one; empty disarms. The environment is read
// at the start of the process. For tests that fork; not for use while other threads pass points.
void arm(std::string_view spec);
// How often the point `name` of the armed spec was passed. For tests.
[[nodiscard]] unsigned long passed(std::string_view name);

void hit(std::string_view name) noexcept;

}  // namespace apportion::fault

#define APPORTION_FAULT_POINT(name)                                                               \
  do {                                                                                            \
    if (::apportion::fault::armed.load(std::memory_order_relaxed)) ::apportion::fault::hit(name); \
  } while (false)
#else
#define APPORTION_FAULT_POINT(name) \
  do {                              \
  } while (false)
#endif
