#include "shm/fault_point.hpp"

#ifdef APPORTION_FAULT_POINTS

#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace apportion::fault {

// Constant-initialised: a point passed in another file's constructor sees "not armed", not garbage.
constinit std::atomic<bool> armed{false};

namespace {

enum class Action { kill, stop, abort };

struct Point {
  std::array<char, 64> name{};
  Action action = Action::kill;
  unsigned long nth = 1;
  std::atomic<unsigned long> count{0};

  [[nodiscard]] std::string_view view() const { return name.data(); }
};

constinit std::array<Point, 16> points{};
constinit std::size_t used = 0;

[[noreturn]] void refuse(std::string_view spec, const char* why) {
  std::fprintf(stderr,
               "apportion: APPORTION_FAULT: \"%.*s\": %s (name:kill|stop|abort[:nth], comma-separated)\n",
               static_cast<int>(spec.size()), spec.data(), why);
  std::_Exit(2);
}

std::string_view cut(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view head = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
  return head;
}

void arm_one(std::string_view entry) {
  std::string_view rest = entry;
  const std::string_view name = cut(rest, ':');
  const std::string_view action = cut(rest, ':');
  if (used == points.size()) refuse(entry, "more than 16 points");
  Point& point = points[used];
  if (name.empty() || name.size() >= point.name.size())
    refuse(entry, "no name, or a name of more than 63 bytes");
  point.name.fill('\0');
  name.copy(point.name.data(), name.size());
  if (action == "kill") {
    point.action = Action::kill;
  } else if (action == "stop") {
    point.action = Action::stop;
  } else if (action == "abort") {
    point.action = Action::abort;
  } else {
    refuse(entry, "unknown action");
  }
  point.nth = 1;
  if (!rest.empty()) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), point.nth);
    if (error != std::errc{} || end != rest.data() + rest.size() || point.nth == 0)
      refuse(entry, "nth is not 1, 2, ...");
  }
  point.count.store(0, std::memory_order_relaxed);
  ++used;
}

void act(Action action) noexcept {
  switch (action) {
    case Action::kill:
      ::kill(::getpid(), SIGKILL);
      for (;;)
        ::pause();
    case Action::stop:
      ::kill(::getpid(), SIGSTOP);
      return;
    case Action::abort:
      std::abort();
  }
}

struct FromEnvironment {
  FromEnvironment() {
    if (const char* spec = std::getenv("APPORTION_FAULT")) arm(spec);
  }
} const from_environment;

}  // namespace

void arm(std::string_view spec) {
  used = 0;
  for (std::string_view rest = spec; !rest.empty();)
    arm_one(cut(rest, ','));
  armed.store(used > 0, std::memory_order_release);
}

unsigned long passed(std::string_view name) {
  for (std::size_t i = 0; i < used; ++i) {
    if (points[i].view() == name) return points[i].count.load(std::memory_order_relaxed);
  }
  return 0;
}

void hit(std::string_view name) noexcept {
  for (std::size_t i = 0; i < used; ++i) {
    Point& point = points[i];
    if (point.view() != name) continue;
    if (point.count.fetch_add(1, std::memory_order_relaxed) + 1 == point.nth) act(point.action);
  }
}

}  // namespace apportion::fault

#endif
