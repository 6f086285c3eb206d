// A device of a test's own, and the helper processes on it.
//
// On the simulator each scene is a fresh device in a fresh folder, so that what one test leaves behind (a
// death that is not yet noticed, a rule broken on purpose) cannot reach another. On a real driver all scenes
// share device 0, and a scene first waits until its free memory stands still. Owns: the folder, and an
// observer process with a context that reads the device's free memory. Never: changes a setting of a real
// device.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cudasim/scratch_folder.hpp"
#include "peer.hpp"

namespace apportion::conformance {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
// The size most tests allocate: a multiple of every granularity that is known.
inline constexpr std::size_t kChunk = 64 * kMiB;
// What free memory may be off by for reasons of the driver's own.
inline constexpr std::size_t kSlack = 16 * kMiB;

class Scene {
 public:
  struct Options {
    std::string devices = "8GiB";               // simulator only
    std::vector<std::string> environment = {};  // for every process of the scene
    bool observer = true;
  };

  Scene() : Scene(Options{}) {}
  explicit Scene(const Options& options);
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // A helper process on this device that has called nothing yet.
  [[nodiscard]] Peer peer(Peer::Options options = {}) const;
  // One that has called cuInit; one that has a context as well.
  [[nodiscard]] Peer started() const;
  [[nodiscard]] Peer with_context() const;

  // The folder of the simulated device, for SimulatorControl.
  [[nodiscard]] const std::string& folder() const { return folder_->path(); }

  // Free bytes of the device as the observer sees them.
  [[nodiscard]] std::size_t free_bytes();

  // Within a deadline, does free memory come to be `bytes` (give or take kSlack)? Polls.
  [[nodiscard]] bool free_becomes(std::size_t bytes);
  // Is free memory `bytes` (give or take kSlack) now?
  [[nodiscard]] bool free_is(std::size_t bytes);

 private:
  std::vector<std::string> environment_;
  std::optional<cudasim::ScratchFolder> folder_;  // none on a real driver
  std::optional<Peer> observer_;
};

// The deadline of what must come to hold, generous for a slow machine; CONFORMANCE_DEADLINE_MS sets another
// (runs with a rule broken on purpose wait for what never comes).
int deadline_ms();

// Polls `done` until it holds or the deadline passes; returns whether it came to hold.
template <typename Condition>
bool eventually(Condition done, int limit_ms = deadline_ms());

}  // namespace apportion::conformance

#include <poll.h>

#include <chrono>

template <typename Condition>
bool apportion::conformance::eventually(Condition done, int limit_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}
