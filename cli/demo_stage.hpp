// What a race needs around it: a simulated device of its own in a folder of its own, and a broker on it.
//
// Owns: the folder and the broker. Promises: both are gone when the object goes. Never: touches a device
// folder or a broker that was there before.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "cli/child_process.hpp"
#include "cli/demo.hpp"
#include "cli/status_query.hpp"
#include "config/config.hpp"

namespace apportion {

// `words` with "FILE:LINE" as that line of `text`, the file's, and FILE as "the demo's config": who reads it
// cannot open the file any more.
[[nodiscard]] std::string cite(std::string words, const std::string& file, const std::string& text);

class DemoStage {
 public:
  [[nodiscard]] static Result<DemoStage> set_up(const DemoOptions& options);
  DemoStage(DemoStage&&) noexcept;
  DemoStage& operator=(DemoStage&&) noexcept = delete;
  ~DemoStage();

  // Empty the device: a new folder for the simulator. Nothing on a real one.
  [[nodiscard]] Status fresh_device();
  [[nodiscard]] Status start_broker();
  [[nodiscard]] Status stop_broker();

  // Of a program that takes part.
  [[nodiscard]] const std::map<std::string, std::string>& variables() const { return variables_; }
  [[nodiscard]] const std::vector<JobConfig>& jobs() const { return config_.jobs; }
  [[nodiscard]] Result<StatusAnswer> status() const;
  // Bytes mapped by two programs at once, by the simulator's census of /proc; none on a real device.
  [[nodiscard]] Result<std::optional<std::uint64_t>> overlap() const;
  [[nodiscard]] bool simulated() const { return simulated_; }
  // What a program's first operation needs: 4 GiB for four on 80 GiB, less where each has less.
  [[nodiscard]] Bytes first_request() const { return first_request_; }

 private:
  DemoStage() = default;
  [[nodiscard]] std::string config_file() const { return folder_ + "/apportion.toml"; }
  // What its broker wrote to standard error; names nothing that is gone with the folder.
  [[nodiscard]] std::string broker_words() const;
  [[nodiscard]] Error broker_ended(int status);

  std::string folder_;
  Config config_;
  bool words_told_ = false;  // what the broker said has become an error
  bool simulated_ = false;
  Bytes first_request_;
  unsigned devices_made_ = 0;
  std::map<std::string, std::string> variables_;
  std::optional<ChildProcess> broker_;
};

}  // namespace apportion
