// tests/support/test_broker.hpp.
#include "tests/support/test_broker.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <ostream>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

namespace apportion::testing {
namespace {

namespace fs = std::filesystem;

cudasim::FolderOptions folder_options(const BrokerOptions& options) {
  cudasim::FolderOptions out;
  out.device_bytes = {options.device.value};
  if (options.context) out.context_bytes = options.context->value;
  out.dirty = options.dirty;
  out.death_min_ms = options.death_min_ms;
  out.death_max_ms = options.death_max_ms;
  return out;
}

}  // namespace

Scratch::Scratch() {
  path_ = (fs::temp_directory_path() / "apportion-XXXXXX").string();
  REQUIRE(::mkdtemp(path_.data()) != nullptr);
  REQUIRE(::chmod(path_.c_str(), 0755) == 0);
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string Scratch::write(const std::string& name, const std::string& text) const {
  const std::string path = path_ + "/" + name;
  std::ofstream file(path);
  file << text;
  file.close();
  REQUIRE(file.good());
  return path;
}

TestBroker::TestBroker(BrokerOptions options)
    : device_(folder_options(options)), options_(std::move(options)) {
  const std::string size = std::to_string(options_.device / 1_MiB) + "MiB";
  config_ = scratch_.write(
      "apportion.toml", "[broker]\ndevice = \"sim:" + size + "\"\n" + options_.broker + "\n" + options_.jobs);
  socket_ = scratch_.path() + "/broker.sock";
  log_ = scratch_.path() + "/log";
  if (options_.uid) REQUIRE(::chown(scratch_.path().c_str(), *options_.uid, *options_.uid) == 0);
  Launch launch = this->launch(config_, socket_);
  launch.command.insert(launch.command.end(), options_.arguments.begin(), options_.arguments.end());
  launch.errors = log_;
  launch.uid = options_.uid;
  launch.open_files = options_.open_files;
  launch.variables["APPORTION_FAULT"] = options_.fault;
  keeper_ = std::make_unique<Process>(launch);
  const bool ready = eventually([&] { return !keeper_->running() || try_status().ok(); });
  INFO("the broker's log:\n" << log());
  REQUIRE(ready);
  REQUIRE(keeper_->running());
}

TestBroker::~TestBroker() {
  std::vector<pid_t> brokers = children_of(keeper_->pid());
  if (keeper_->running()) {
    keeper_->signal(SIGTERM);
    (void)eventually([&] { return !keeper_->running(); }, std::chrono::seconds(20));
  }
  keeper_->kill();
  // A broker outlives its keeper (F51).
  for (const pid_t pid : brokers) {
    if (text_of("/proc/" + std::to_string(pid) + "/comm") == "apportiond\n") ::kill(pid, SIGKILL);
  }
}

Launch TestBroker::launch(const std::string& config, const std::string& socket) const {
  Launch launch;
  launch.command = {built("broker/apportiond"), "--config", config};
  launch.variables = {{"APPORTION_SOCKET", socket},
                      {"CUDASIM_DIR", device_.path()},
                      {"CUDASIM_FORCE", "1"},
                      {"APPORTION_CONFIG", ""},
                      {"APPORTION_LOG", "info"}};
  return launch;
}

pid_t TestBroker::broker_pid() const {
  return static_cast<pid_t>(status().broker.pid);
}

std::optional<pid_t> TestBroker::helper_pid() const {
  const std::vector<pid_t> children = children_of(broker_pid());
  return children.empty() ? std::nullopt : std::optional(children.front());
}

StatusAnswer TestBroker::status() const {
  Result<StatusAnswer> answer = try_status();
  if (!answer.ok()) {
    INFO("the broker's log:\n" << log());
    FAIL(answer.error().message);
  }
  return *std::move(answer);
}

wire::JobRow TestBroker::job(const std::string& name) const {
  const StatusAnswer answer = status();
  const auto row = std::find_if(answer.jobs.begin(), answer.jobs.end(),
                                [&](const wire::JobRow& each) { return each.job.name.view() == name; });
  REQUIRE(row != answer.jobs.end());
  return *row;
}

std::optional<wire::SessionRow> TestBroker::session_of(pid_t pid) const {
  for (const wire::SessionRow& row : status().sessions)
    if (row.session.pid == static_cast<std::uint32_t>(pid)) return row;
  return std::nullopt;
}

void TestBroker::check_sums(const StatusAnswer& status) {
  const TotalsRecord& totals = status.broker.totals;
  CHECK(totals.pool == totals.charged + totals.in_transit + totals.free + totals.loose);
  std::uint64_t by_jobs = 0;
  for (const wire::JobRow& row : status.jobs) {
    by_jobs += row.job.charged;
    std::uint64_t by_sessions = 0;
    for (const wire::SessionRow& session : status.sessions)
      if (session.job_name.view() == row.job.name.view()) by_sessions += session.session.charged;
    CHECK(row.job.charged == by_sessions);
    CHECK(row.job.charged <= row.job.limit);
  }
  CHECK(totals.charged == by_jobs);
}

void TestBroker::wait_idle() const {
  const auto idle = [&] {
    const StatusAnswer answer = status();
    const TotalsRecord& totals = answer.broker.totals;
    return answer.sessions.empty() && totals.charged == 0 && totals.in_transit == 0 &&
           totals.free + totals.loose == totals.pool &&
           (totals.loose == 0 || (answer.broker.flags & wire::BrokerRow::kReserveLeased) != 0);
  };
  if (eventually(idle, std::chrono::seconds(30))) return;
  const StatusAnswer answer = status();
  const TotalsRecord& totals = answer.broker.totals;
  INFO("sessions " << answer.sessions.size() << ", charged " << totals.charged << ", in transit "
                   << totals.in_transit << ", free " << totals.free << ", loose " << totals.loose << ", pool "
                   << totals.pool << "\nlog:\n"
                   << log());
  FAIL("the broker did not come to rest");
}

int TestBroker::stop() {
  keeper_->signal(SIGTERM);
  return keeper_->wait();
}

TestBroker::Footprint TestBroker::footprint() const {
  Footprint print;
  print.keeper_fds = open_fds(keeper_->pid());
  // Connections that we have closed are open there for a moment still, our question for the pid among them.
  const pid_t broker = broker_pid();
  print.broker_fds = std::numeric_limits<std::size_t>::max();
  (void)eventually(
      [&] {
        constexpr std::size_t kForAHelper = 2;  // its socket and its pidfd
        const std::size_t fds = open_fds(broker);
        print.broker_fds = std::min(print.broker_fds, fds - kForAHelper * children_of(broker).size());
        return false;
      },
      std::chrono::milliseconds(40));
  print.own_fds = open_fds(::getpid());
  for (const cudasim::AllocationInfo& each : device().census().allocations)
    print.allocations += each.referenced ? 1 : 0;
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(device_.path(), ignored), end; at != end; at.increment(ignored))
    ++print.files;
  return print;
}

void TestBroker::wait_footprint(const Footprint& before) const {
  if (eventually([&] { return footprint() == before; }, std::chrono::seconds(20))) return;
  CHECK(footprint() == before);
}

std::ostream& operator<<(std::ostream& out, const TestBroker::Footprint& print) {
  return out << "{keeper fds " << print.keeper_fds << ", broker fds " << print.broker_fds << ", own fds "
             << print.own_fds << ", allocations " << print.allocations << ", device files " << print.files
             << "}";
}

Refused run_refused(const Launch& launch) {
  const Scratch scratch;
  Launch with_errors = launch;
  with_errors.errors = scratch.path() + "/errors";
  Process process(with_errors);
  Refused out;
  while (const auto line = process.line())
    out.output += *line + "\n";
  out.status = process.wait();
  out.errors = text_of(with_errors.errors);
  return out;
}

}  // namespace apportion::testing
