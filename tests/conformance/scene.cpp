// Fresh devices for tests: tests/conformance/scene.hpp.
#include "scene.hpp"

#include <cstdlib>

#include "driver.hpp"
#include "tests/support/catch.hpp"

namespace apportion::conformance {
namespace {

bool near(std::size_t a, std::size_t b) {
  return a > b ? a - b <= kSlack : b - a <= kSlack;
}

}  // namespace

int deadline_ms() {
  const char* text = std::getenv("CONFORMANCE_DEADLINE_MS");
  return text != nullptr ? std::atoi(text) : 20'000;
}

Scene::Scene(const Options& options) : environment_(options.environment) {
  if (on_simulator()) {
    folder_.emplace();
    environment_.push_back("CUDASIM_DIR=" + folder());
    environment_.push_back("CUDASIM_DEVICES=" + options.devices);
  }
  if (!options.observer) return;
  observer_.emplace(peer());
  observer_->start_context();
  if (on_simulator()) return;
  std::size_t last = 0;
  REQUIRE(eventually([&] {
    ::poll(nullptr, 0, 100);
    const std::size_t now = observer_->free_bytes();
    return std::exchange(last, now) == now;
  }));
}

Peer Scene::peer(Peer::Options options) const {
  options.environment.insert(options.environment.end(), environment_.begin(), environment_.end());
  return Peer(options);
}

Peer Scene::started() const {
  Peer made = peer();
  made.start();
  return made;
}

Peer Scene::with_context() const {
  Peer made = peer();
  made.start_context();
  return made;
}

std::size_t Scene::free_bytes() {
  return observer_->free_bytes();
}

bool Scene::free_becomes(std::size_t bytes) {
  std::size_t seen = 0;
  const bool reached = eventually([&] { return near(seen = free_bytes(), bytes); });
  if (!reached) UNSCOPED_INFO("free memory is " << seen << ", expected " << bytes);
  return reached;
}

bool Scene::free_is(std::size_t bytes) {
  const std::size_t seen = free_bytes();
  if (!near(seen, bytes)) UNSCOPED_INFO("free memory is " << seen << ", expected " << bytes);
  return near(seen, bytes);
}

}  // namespace apportion::conformance
