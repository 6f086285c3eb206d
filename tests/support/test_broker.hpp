// A real apportiond on a simulated device of its own, for one test.
//
// Owns: the device's folder under /dev/shm, a folder with config, socket and log, the keeper and its broker.
// Promises: ready when constructed; all of it gone when destroyed. Clients need no variable but
// APPORTION_SOCKET.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/status_query.hpp"
#include "cudasim/control.hpp"
#include "shm/bytes.hpp"
#include "tests/support/process.hpp"

namespace apportion::testing {

// A folder of its own that others may read, gone with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const;  // the file's path

 private:
  std::string path_;
};

struct BrokerOptions {
  Bytes device = 8_GiB;
  std::string broker;  // more lines of [broker]
  std::string jobs;    // "[jobs.a]\nshare = ..."
  std::string fault;   // APPORTION_FAULT of keeper and broker
  std::optional<uid_t> uid = {};
  std::optional<rlim_t> open_files = {};
  std::optional<Bytes> context = {};  // what a context costs; the simulator's default where none
  bool dirty = false;                 // fresh memory shows what its last owner left
  std::uint32_t death_min_ms = 0;     // how late the device gives back what the dead held
  std::uint32_t death_max_ms = 0;
  std::vector<std::string> arguments = {};  // more of apportiond's
};

class TestBroker {
 public:
  // Fails the test where it does not get ready.
  explicit TestBroker(BrokerOptions options);
  ~TestBroker();
  TestBroker(const TestBroker&) = delete;
  TestBroker& operator=(const TestBroker&) = delete;

  [[nodiscard]] const std::string& socket() const { return socket_; }
  [[nodiscard]] const std::string& config() const { return config_; }
  [[nodiscard]] const Scratch& scratch() const { return scratch_; }
  [[nodiscard]] const cudasim::Control& device() const { return device_.control(); }
  [[nodiscard]] cudasim::Control& device() { return device_.control(); }
  [[nodiscard]] const std::string& device_folder() const { return device_.path(); }
  // How one more apportiond of the same device is started.
  [[nodiscard]] Launch launch(const std::string& config, const std::string& socket) const;

  [[nodiscard]] Process& keeper() { return *keeper_; }
  [[nodiscard]] pid_t broker_pid() const;                 // of now
  [[nodiscard]] std::optional<pid_t> helper_pid() const;  // of now, where there is one

  // Fails the test where the broker does not answer.
  [[nodiscard]] StatusAnswer status() const;
  [[nodiscard]] Result<StatusAnswer> try_status() const { return ask_status_at(socket_); }
  [[nodiscard]] wire::JobRow job(const std::string& name) const;
  [[nodiscard]] std::optional<wire::SessionRow> session_of(pid_t pid) const;
  // P = sum(u) + X + F in what the broker tells; every sum over rows agrees.
  static void check_sums(const StatusAnswer& status);
  [[nodiscard]] Bytes pool() const { return Bytes{status().broker.totals.pool}; }
  [[nodiscard]] Bytes chunk() const { return Bytes{status().broker.totals.chunk}; }

  // Log lines of both processes so far.
  [[nodiscard]] std::string log() const { return text_of(log_); }
  [[nodiscard]] bool logged(const std::string& text) const { return log().find(text) != std::string::npos; }

  // No session, nothing charged, nothing on its way, and the pool whole again.
  void wait_idle() const;
  // SIGTERM; the exit status.
  int stop();

  // What a test must leave as it found it: descriptors of keeper and broker (but those for a helper, which
  // comes and goes), the simulator's references.
  struct Footprint {
    std::size_t keeper_fds = 0;
    std::size_t broker_fds = 0;
    std::size_t own_fds = 0;
    std::size_t allocations = 0;
    std::size_t files = 0;  // in the device's folder
    bool operator==(const Footprint&) const = default;
  };
  [[nodiscard]] Footprint footprint() const;
  // Waits for it: closing and reaping take a moment.
  void wait_footprint(const Footprint& before) const;

 private:
  cudasim::TemporaryFolder device_;
  Scratch scratch_;
  BrokerOptions options_;
  std::string config_;
  std::string socket_;
  std::string log_;
  std::unique_ptr<Process> keeper_;
};

std::ostream& operator<<(std::ostream& out, const TestBroker::Footprint& print);

// `apportiond` run to its end where it must refuse to start: one line on standard error, and its exit status.
struct Refused {
  int status = 0;
  std::string errors;
  std::string output;
};
[[nodiscard]] Refused run_refused(const Launch& launch);

}  // namespace apportion::testing
