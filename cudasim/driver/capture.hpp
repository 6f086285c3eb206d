// Stream capture: which streams record instead of run, and which calls a capture forbids (rule 36).
//
// A capture begun in mode GLOBAL forbids unsafe calls on every thread, one in THREAD_LOCAL on the thread that
// began it, RELAXED on none; a thread says with cuThreadExchangeStreamCaptureMode how far it lets itself be
// forbidden. A forbidden call fails and spoils the capture. Thread-safe.
#pragma once
#include "cudasim/driver/graph.hpp"
#include "cudasim/driver/streams.hpp"

namespace cudasim {

struct Capture {
  u64 id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  int thread = 0;  // tid that began it
  bool spoiled = false;
  std::shared_ptr<Stream> origin;
  std::set<std::shared_ptr<Stream>> joined;  // other streams that wait for its events
  std::set<std::shared_ptr<Stream>> forked;  // of those, not waited for by the origin since their last work
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};

// An event recorded inside a capture: waiting for it brings a stream into that capture.
struct CapturedPoint {
  std::shared_ptr<Capture> capture;
  std::shared_ptr<Stream> stream;
};

class Captures {
 public:
  static Captures& get();

  CUresult begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode);
  CUresult end(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>& graph);
  CUstreamCaptureStatus status(const Stream& stream, u64* id = nullptr,
                               std::shared_ptr<Graph>* graph = nullptr);

  // cuStreamIsCapturing of the legacy stream cannot be answered while a blocking stream of its context is
  // captured, and spoils nothing (cuda.h).
  bool implicit(const Stream& stream);

  // What becomes of work that a program gives to `stream`: recorded (`taken`), refused, or the caller's to
  // enqueue.
  CUresult take(const std::shared_ptr<Stream>& stream, Work& work, bool& taken);
  // For calls that need a stream to run (synchronise, query): refused, spoiling the capture it is in.
  CUresult refuse_captured(const std::shared_ptr<Stream>& stream);
  // For cuCtxSynchronize: as above when any stream of the context is captured.
  CUresult refuse_context(const Context& context);
  // For queries of an event that was recorded in a capture.
  CUresult refuse_event(const CapturedPoint& point);

  // nullopt: `stream` is not captured, record as usual.
  std::optional<CapturedPoint> record(const std::shared_ptr<Stream>& stream);
  // `stream` waits for an event of a capture.
  CUresult join(const std::shared_ptr<Stream>& stream, const CapturedPoint& point);

  // Rule 36 for the calling thread and an unsafe call.
  CUresult check_unsafe();
  // The streams of `context` are about to go.
  void context_gone(const Context& context);

 private:
  void spoil(Capture& capture);
  void finish(const std::shared_ptr<Capture>& capture);
  bool legacy_conflict(const Stream& stream);
  [[nodiscard]] bool orders_itself(const Stream& legacy, const Capture& capture) const;

  std::mutex mutex_;
  u64 next_id_ = 1;
  std::set<std::shared_ptr<Capture>> open_;
};

// Rule 36 by name: true for calls that a capture in mode GLOBAL forbids.
bool unsafe_during_capture(const char* symbol);

// Exchanges the calling thread's mode.
CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode);

}  // namespace cudasim
