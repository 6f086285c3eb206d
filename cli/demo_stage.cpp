#include "cli/demo_stage.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "cli/interrupt.hpp"
#include "cli/programs.hpp"
#include "cli/race_config.hpp"
#include "config/load.hpp"
#include "gpu/device.hpp"
#include "shm/quote.hpp"

namespace apportion {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};

constexpr const char* kBrokerErrors = "/broker.log";
constexpr std::string_view kBrokerName = "apportiond: ";

// A context and its libraries, per program; the simulator's is 512 MiB on large devices.
constexpr Bytes kContextRoom = 640_MiB;

// The jobs of examples/config/race.toml for four clients; for another number as many equal ones.
Result<Config> config_for(const DemoOptions& options) {
  Result<Config> parsed = parse_config(kRaceToml, "race.toml", system_names());
  if (!parsed.ok()) return parsed.error();
  Config config = *std::move(parsed);
  Result<DeviceName> device = parse_device(options.device);
  if (!device.ok()) return device.error();
  config.broker.device = *device;
  if (options.clients == config.jobs.size()) return config;
  config.jobs.clear();
  for (unsigned i = 1; i <= options.clients; ++i) {
    JobConfig job;
    job.name = "racer-" + std::to_string(i);
    job.guarantee = Amount{Fraction{1, options.clients}};
    job.limit = job.guarantee;
    config.jobs.push_back(std::move(job));
  }
  return config;
}

Result<Bytes> total_of(const DeviceName& name) {
  if (name.kind == DeviceName::Kind::simulated) return name.simulated_size;
  Result<Device> device = Device::open(name);
  if (!device.ok()) return device.error();
  return device->facts().total;
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return Error{Errc::system, "cannot write " + path};
  return Done{};
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string line_of(const std::string& text, int number) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line))
    if (--number == 0) return line;
  return {};
}

}  // namespace

std::string cite(std::string words, const std::string& file, const std::string& text) {
  for (std::size_t at = 0; (at = words.find(file, at)) != std::string::npos;) {
    std::size_t end = at + file.size();
    std::string instead = "the demo's config";
    int number = 0;
    if (words.compare(end, 1, ":") == 0) {
      const char* const digits = words.data() + end + 1;
      const auto [after, failed] = std::from_chars(digits, words.data() + words.size(), number);
      if (failed == std::errc()) {
        instead += " (" + printable(line_of(text, number)) + ")";
        end = static_cast<std::size_t>(after - words.data());
      }
    }
    words.replace(at, end - at, instead);
    at += instead.size();
  }
  return words;
}

Result<DemoStage> DemoStage::set_up(const DemoOptions& options) {
  DemoStage stage;
  Result<Config> config = config_for(options);
  if (!config.ok()) return config.error();
  stage.config_ = *std::move(config);
  stage.simulated_ = stage.config_.broker.device.kind == DeviceName::Kind::simulated;
  Result<Bytes> total = total_of(stage.config_.broker.device);
  if (!total.ok()) return total.error();
  // A fifth of an equal part: always below what a guarantee leaves of it, so that a fair share is enough.
  stage.first_request_ = std::min(4_GiB, round_down(Bytes{total->value / (5ULL * options.clients)}, 2_MiB));
  // Many programs need more room for their contexts than a broker keeps by itself.
  const Bytes contexts = kContextRoom * options.clients;
  if (contexts > automatic_overhead({.total = *total})) stage.config_.broker.overhead = contexts;
  std::string name = stage.simulated_ ? "/dev/shm/apportion-demo-XXXXXX" : "/tmp/apportion-demo-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return system_error("cannot make a folder " + name, errno);
  stage.folder_ = name;
  if (Status written = write_file(stage.config_file(), to_toml(stage.config_)); !written.ok())
    return written.error();
  stage.variables_ = {{"APPORTION_SOCKET", name + "/broker.sock"}, {"APPORTION_LOG", "error"}};
  if (Status device = stage.fresh_device(); !device.ok()) return device.error();
  return stage;
}

DemoStage::DemoStage(DemoStage&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      config_(std::move(other.config_)),
      words_told_(other.words_told_),
      simulated_(other.simulated_),
      first_request_(other.first_request_),
      devices_made_(other.devices_made_),
      variables_(std::move(other.variables_)),
      broker_(std::move(other.broker_)) {}

DemoStage::~DemoStage() {
  if (broker_) (void)stop_broker();
  if (!folder_.empty() && !words_told_) std::fputs(broker_words().c_str(), stderr);
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status DemoStage::fresh_device() {
  if (!simulated_) return Done{};
  std::error_code ignored;
  if (devices_made_ > 0) std::filesystem::remove_all(variables_["CUDASIM_DIR"], ignored);
  ++devices_made_;
  variables_["CUDASIM_DIR"] = folder_ + "/device-" + std::to_string(devices_made_);
  return Done{};
}

Status DemoStage::start_broker() {
  Result<std::string> program = find_program(Program::broker);
  if (!program.ok()) return program.error();
  Result<ChildProcess> broker =
      ChildProcess::start({*program, "--config", config_file()}, variables_, folder_ + kBrokerErrors);
  if (!broker.ok()) return broker.error();
  broker_ = *std::move(broker);
  // It answers once its pool is filled.
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    if (interrupted()) return Error{Errc::system, "interrupted"};
    if (status().ok()) return Done{};
    if (Result<int> ended = broker_->wait(Clock::now() + std::chrono::milliseconds(20)); ended.ok()) {
      broker_.reset();
      return broker_ended(*ended);
    }
  }
  return Error{Errc::timed_out, "the broker did not become ready in time"};
}

Status DemoStage::stop_broker() {
  broker_->signal(SIGTERM);
  const Result<int> ended = broker_->wait(Clock::now() + kPatience);
  broker_.reset();
  if (!ended.ok()) return ended.error();
  if (*ended != 0) return broker_ended(*ended);
  return Done{};
}

std::string DemoStage::broker_words() const {
  return cite(read_file(folder_ + kBrokerErrors), config_file(), read_file(config_file()));
}

Error DemoStage::broker_ended(int status) {
  words_told_ = true;
  const std::string words = broker_words();
  std::string last = words.substr(0, words.find_last_not_of('\n') + 1);
  last.erase(0, last.rfind('\n') + 1);
  if (last.starts_with(kBrokerName)) last.erase(0, kBrokerName.size());
  return {Errc::disconnected, "the demo's broker ended with status " + std::to_string(status) +
                                  (last.empty() ? "" : ": " + last)};
}

Result<StatusAnswer> DemoStage::status() const {
  return ask_status_at(variables_.at("APPORTION_SOCKET"));
}

Result<std::optional<std::uint64_t>> DemoStage::overlap() const {
  if (!simulated_) return std::optional<std::uint64_t>{};
  Result<std::string> program = find_program(Program::simulator_control);
  if (!program.ok()) return program.error();
  Result<ChildProcess> census = ChildProcess::start({*program, "census"}, variables_, {});
  if (!census.ok()) return census.error();
  Result<std::string> line = census->line(Clock::now() + kPatience);
  if (!line.ok()) return line.error();
  const nlohmann::json answer = nlohmann::json::parse(*line, nullptr, false);
  if (!answer.is_object() || !answer.contains("overlap_bytes"))
    return Error{Errc::protocol, "the simulator's census cannot be read: " + *line};
  return std::optional(answer["overlap_bytes"].get<std::uint64_t>());
}

}  // namespace apportion
