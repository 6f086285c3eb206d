// The CUDA context that the client's driver calls run in.
//
// Promises: makes no context of its own while one of the device is current on the calling thread; else it
// retains the device's primary one at the first need, and keeps it to the end: that is the one CUDA's runtime
// and the frameworks use. What was current before a Scope is current after it. Not thread-safe; the arena's
// slow lock covers it.
#pragma once

#include <cstdint>
#include <span>

#include "gpu/device.hpp"
#include "libclient/host_memory.hpp"

namespace apportion {

class DeviceContext {
 public:
  explicit DeviceContext(const Device& device) : device_(device) {}
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  // Runs `work` with a context of the device current, so that its driver calls do not spoil a stream capture
  // on another thread (rule 36). Errors: out_of_memory (no room for a context), driver; else what `work`
  // answers.
  [[nodiscard]] Status run(const Work& work);
  // The same, but every time in the context that the first such call found: what cuIpcOpenMemHandle maps
  // belongs to one. A program that made that context itself must keep it to the end.
  [[nodiscard]] Status run_at_home(const Work& work);

  // Returns when the GPU has done what the current, the primary and the home context were given. Errc::busy,
  // leaving the capture whole, where one of `streams` is being captured. The legacy stream (0) stands for all
  // blocking ones.
  [[nodiscard]] Status synchronize(std::initializer_list<std::uint64_t> streams);
  // Returns when the GPU has done what these streams of that context were given: an event on each. busy where
  // one of them is being captured; then none has an event.
  [[nodiscard]] Status wait_for(std::span<const std::uint64_t> streams);

  // Whether no other context than the primary one was current in any call so far.
  [[nodiscard]] bool only_primary() const { return !others_; }

 private:
  // Whether the calling thread's current context is one of the device; remembers if it is not the primary
  // one.
  [[nodiscard]] bool current_is_ours();
  [[nodiscard]] bool primary_is_active() const;
  [[nodiscard]] Status retain();
  [[nodiscard]] Status with(CUcontext context, const Work& work) const;

  const Device& device_;
  CUcontext primary_ = nullptr;  // retained, if any
  CUcontext home_ = nullptr;     // once run_at_home has run
  bool others_ = false;
};

}  // namespace apportion
