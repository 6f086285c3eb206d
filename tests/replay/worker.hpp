// One replay_race_worker (race_worker.cpp), driven by a test: its gates, its lines, its end.
#pragma once

#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shm/fd.hpp"

namespace apportion::replay {

class Worker {
 public:
  // Starts it with `arguments` and, on top of ours, `variables`. Fails the test where it cannot.
  explicit Worker(const std::vector<std::string>& arguments,
                  const std::map<std::string, std::string>& variables = {});
  ~Worker();  // closes the gate; kills it where it does not end
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Opens the next gate.
  void go();
  // Its next line, which must be `event`; fails the test after the deadline.
  nlohmann::json expect(const std::string& event);
  // It says its last line and ends.
  void close_gate() { gate_.reset(); }
  // Closes the gate and waits; its exit status.
  int finish();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Fd gate_;
  Fd lines_;
  std::string pending_;
};

}  // namespace apportion::replay
