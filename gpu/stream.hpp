// Waiting for the GPU: events, streams, the context.
//
// Never: records, queries or synchronises on a capturing stream; callers ask is_capturing first (that alone
// is safe). Thread-safety: a current context is needed on the calling thread; one Event is one thread's at a
// time.
#pragma once

#include "gpu/driver_table.hpp"

namespace apportion {

// A marker in a stream's order, without timing. Owns the driver's event.
class Event {
 public:
  Event() = default;  // empty
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  static Result<Event> create(const DriverTable& driver);
  // Marks what `stream` was given so far.
  Status record(CUstream stream);
  // Whether the GPU has passed the mark. An error says nothing about the GPU's progress.
  [[nodiscard]] Result<bool> passed() const;
  // Returns when the GPU has passed it.
  [[nodiscard]] Status wait() const;
  [[nodiscard]] bool empty() const { return driver_ == nullptr; }

 private:
  const DriverTable* driver_ = nullptr;
  CUevent event_ = nullptr;
};

// Whether `stream` is being captured into a graph, or is the legacy stream beside a blocking one that is
// (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT). Error driver: the context is broken (rule 19), or no such stream.
[[nodiscard]] Result<bool> is_capturing(const DriverTable& driver, CUstream stream);

// Returns when the GPU has done everything the current context was given. Errc::busy, and the capture is
// spoiled, while one of its streams is captured.
[[nodiscard]] Status synchronize_context(const DriverTable& driver);

}  // namespace apportion
