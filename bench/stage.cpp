#include "bench/stage.hpp"

#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "cli/programs.hpp"

namespace apportion::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};

cudasim::FolderOptions device_options(const StageOptions& options) {
  cudasim::FolderOptions out;
  out.device_bytes = {options.device.value};
  out.context_bytes = 0;  // what a context costs is no part of any figure here
  out.record = false;     // nor is the simulator's own log
  return out;
}

}  // namespace

Result<std::unique_ptr<Stage>> Stage::set_up(const StageOptions& options) {
  std::unique_ptr<Stage> stage(new Stage(device_options(options)));
  if (Status started = stage->start(options); !started) return started.error();
  return stage;
}

Status Stage::start(const StageOptions& options) {
  folder_ = (fs::temp_directory_path() / "apportion-bench-XXXXXX").string();
  if (::mkdtemp(folder_.data()) == nullptr) {
    Error error = system_error("cannot make a folder " + folder_, errno);
    folder_.clear();
    return error;
  }
  const std::string config = folder_ + "/apportion.toml";
  std::ofstream(config) << "[broker]\ndevice = \"sim:" << options.device / 1_MiB << "MiB\"\n"
                        << options.broker << "\n"
                        << options.jobs << "\n";
  const Result<std::string> program = find_program(Program::broker);
  if (!program) return program.error();
  Result<ChildProcess> keeper = ChildProcess::start({*program, "--config", config},
                                                    {{"APPORTION_SOCKET", socket()},
                                                     {"APPORTION_CONFIG", ""},
                                                     {"APPORTION_LOG", "warn"},
                                                     {"CUDASIM_DIR", device_.path()},
                                                     {"CUDASIM_FORCE", "1"}},
                                                    folder_ + "/log");
  if (!keeper) return keeper.error();
  keeper_ = *std::move(keeper);
  for (const auto deadline = Clock::now() + kPatience; Clock::now() < deadline;) {
    if (status()) return Done{};
    if (keeper_->wait(Clock::now() + std::chrono::milliseconds(20))) break;
  }
  return Error{Errc::disconnected, "the bench's broker did not get ready: " + log()};
}

Stage::~Stage() {
  if (keeper_) {
    keeper_->signal(SIGTERM);
    (void)keeper_->wait(Clock::now() + kPatience).ok();
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string Stage::log() const {
  std::ifstream file(folder_ + "/log");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  for (char& each : text)
    if (each == '\n') each = ' ';
  return text;
}

Status Stage::wait_idle() const {
  for (const auto deadline = Clock::now() + kPatience; Clock::now() < deadline;) {
    const Result<StatusAnswer> now = status();
    if (!now) return now.error();
    if (now->sessions.empty() && now->broker.totals.charged == 0 && now->broker.totals.in_transit == 0)
      return Done{};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return Error{Errc::timed_out, "the bench's broker did not come to rest: " + log()};
}

}  // namespace apportion::bench
