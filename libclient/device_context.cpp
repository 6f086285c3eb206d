#include "libclient/device_context.hpp"

#include <vector>

#include "gpu/capture_guard.hpp"
#include "gpu/stream.hpp"

namespace apportion {

DeviceContext::~DeviceContext() {
  if (primary_ != nullptr) static_cast<void>(device_.driver().device_primary_ctx_release(device_.ordinal()));
}

bool DeviceContext::primary_is_active() const {
  unsigned flags = 0;
  int active = 1;
  const DriverTable& driver = device_.driver();
  return driver.device_primary_ctx_get_state == nullptr ||
         driver.device_primary_ctx_get_state(device_.ordinal(), &flags, &active) != CUDA_SUCCESS ||
         active != 0;
}

bool DeviceContext::current_is_ours() {
  CUcontext current = nullptr;
  CUdevice device = 0;
  const bool ours = device_.driver().ctx_get_current(&current) == CUDA_SUCCESS && current != nullptr &&
                    device_.driver().ctx_get_device(&device) == CUDA_SUCCESS && device == device_.ordinal();
  // The primary one is not made for the sake of comparing.
  if (ours && !others_ && current != primary_) {
    others_ = !primary_is_active() || !retain() || current != primary_;
  }
  return ours;
}

Status DeviceContext::retain() {
  if (primary_ != nullptr) return Done{};
  return driver_status(device_.driver(),
                       device_.driver().device_primary_ctx_retain(&primary_, device_.ordinal()),
                       "cuDevicePrimaryCtxRetain");
}

Status DeviceContext::with(CUcontext context, const Work& work) const {
  const DriverTable& driver = device_.driver();
  if (const CUresult r = driver.ctx_push_current(context); r != CUDA_SUCCESS) {
    return driver_error(driver, r, "cuCtxPushCurrent");
  }
  struct Pop {  // also where the host has no memory for the work (F31)
    ~Pop() {
      CUcontext popped = nullptr;
      static_cast<void>(driver.ctx_pop_current(&popped));
    }
    const DriverTable& driver;
  } const pop{driver};
  return work();
}

Status DeviceContext::run(const Work& work) {
  const CaptureGuard guard(device_.driver());
  if (current_is_ours()) return work();
  if (Status retained = retain(); !retained) return retained;
  return with(primary_, work);
}

Status DeviceContext::run_at_home(const Work& work) {
  const DriverTable& driver = device_.driver();
  const CaptureGuard guard(driver);
  if (home_ == nullptr && (!current_is_ours() || driver.ctx_get_current(&home_) != CUDA_SUCCESS)) {
    if (Status retained = retain(); !retained) return retained;
    home_ = primary_;
  }
  return with(home_, work);
}

Status DeviceContext::wait_for(std::span<const std::uint64_t> streams) {
  const DriverTable& driver = device_.driver();
  return run([&]() -> Status {
    for (const std::uint64_t stream : streams) {
      const Result<bool> capturing = is_capturing(driver, reinterpret_cast<CUstream>(stream));
      if (!capturing) return capturing.error();
      if (*capturing) return Error{Errc::busy, "a stream is being captured"};
    }
    std::vector<Event> events;
    events.reserve(streams.size());
    for (const std::uint64_t stream : streams) {
      Result<Event> event = Event::create(driver);
      if (!event) return event.error();
      if (Status recorded = event->record(reinterpret_cast<CUstream>(stream)); !recorded) return recorded;
      events.push_back(*std::move(event));
    }
    for (const Event& event : events) {
      if (Status passed = event.wait(); !passed) return passed;
    }
    return Done{};
  });
}

Status DeviceContext::synchronize(std::initializer_list<std::uint64_t> streams) {
  const DriverTable& driver = device_.driver();
  const CaptureGuard guard(driver);
  const auto quiet = [&]() -> Status {
    // A synchronise beside a capture would fail and spoil it.
    for (const std::uint64_t stream : streams) {
      const Result<bool> capturing = is_capturing(driver, reinterpret_cast<CUstream>(stream));
      if (!capturing) return capturing.error();
      if (*capturing) {
        return Error{Errc::busy,
                     "a stream is being captured; memory that must wait for the GPU is not to be had"};
      }
    }
    return synchronize_context(driver);
  };
  CUcontext current = nullptr;
  if (current_is_ours()) {
    if (Status done = quiet(); !done) return done;
    if (driver.ctx_get_current(&current) != CUDA_SUCCESS) current = nullptr;
  }
  if (home_ != nullptr && home_ != current && home_ != primary_) {
    if (Status done = with(home_, quiet); !done) return done;
  }
  if (!primary_is_active()) return Done{};  // nobody has given it work
  if (Status retained = retain(); !retained) return retained;
  if (current == primary_) return Done{};  // once is enough
  return with(primary_, quiet);
}

}  // namespace apportion
