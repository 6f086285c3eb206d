// A simulated device with a real broker on it, for one gate or several.
//
// Owns: the device's folder, a folder with config, socket and log, keeper and broker. Promises: ready when it
// is made, all of it gone when the object goes. Never: touches a broker or a device that was there before.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.hpp"
#include "cli/status_query.hpp"
#include "cudasim/control.hpp"
#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion::bench {

struct StageOptions {
  Bytes device;
  std::string broker{};  // more lines of [broker]
  std::string jobs;      // "[jobs.bench]\nshare = ..."
};

class Stage {
 public:
  // One line where it cannot get ready, with what the broker said.
  [[nodiscard]] static Result<std::unique_ptr<Stage>> set_up(const StageOptions& options);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  [[nodiscard]] std::string socket() const { return folder_ + "/broker.sock"; }
  [[nodiscard]] cudasim::Control& device() { return device_.control(); }
  [[nodiscard]] Result<StatusAnswer> status() const { return ask_status_at(socket()); }
  // No session is left and nothing is charged or on its way. Errors: timed_out.
  [[nodiscard]] Status wait_idle() const;
  [[nodiscard]] pid_t keeper_pid() const { return keeper_->pid(); }

 private:
  explicit Stage(const cudasim::FolderOptions& device) : device_(device) {}
  [[nodiscard]] Status start(const StageOptions& options);
  [[nodiscard]] std::string log() const;

  cudasim::TemporaryFolder device_;
  std::string folder_;
  std::optional<ChildProcess> keeper_;
};

}  // namespace apportion::bench
