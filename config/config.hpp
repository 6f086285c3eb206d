// apportion.toml as values: every key of docs/config.md, typed, with its default. What the amounts mean on a
// given device is worked out by config/load.hpp.
//
// Promises: a Config that parse_config returned is complete and in range; errors name file, line and the
// offending text. Never: asks a driver, includes toml++ (only parse.cpp does).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/sizes.hpp"
#include "config/user_rule.hpp"
#include "shm/bytes.hpp"
#include "shm/device_name.hpp"
#include "shm/result.hpp"

namespace apportion {

inline constexpr std::size_t kMaxJobName = 63;  // bytes; [A-Za-z0-9] then [A-Za-z0-9._-]
inline constexpr std::size_t kMaxJobs = 256;
inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
inline constexpr Bytes kMinChunk = 2_MiB;
inline constexpr Bytes kMaxChunk = 1_GiB;

enum class Reserve { all, leased };    // hold the pool at once; take memory only as it is leased
enum class Hold { attached, always };  // when the guarantee is in force
enum class ReportRule { automatic, guarantee, limit };  // which total a program is told
enum class Overdue { deny, evict };                     // what a guaranteed waiter may do when its wait ends
enum class Scrub { cross_owner, always, never };
enum class ReturnRule { automatic, trusted, strict };  // automatic: trusted within a uid, strict across uids
enum class Transport { vmm, ipc };
enum class Serve { credit, lease };

// The word used in the file, in logs and in JSON: "cross-owner", "auto" and so on.
[[nodiscard]] const char* to_text(Reserve value);
[[nodiscard]] const char* to_text(Hold value);
[[nodiscard]] const char* to_text(ReportRule value);
[[nodiscard]] const char* to_text(Overdue value);
[[nodiscard]] const char* to_text(Scrub value);
[[nodiscard]] const char* to_text(ReturnRule value);
[[nodiscard]] const char* to_text(Transport value);
[[nodiscard]] const char* to_text(Serve value);

struct BrokerConfig {
  DeviceName device;
  std::optional<Amount> pool;  // none: "auto". A fraction is of the device's total
  Bytes chunk = 32_MiB;
  std::optional<Reserve> reserve;  // none: by the device, see load()
  std::optional<Amount> overhead;  // none: auto. A fraction is of the device's total
  Duration reclaim_deadline{2000};
  Duration reattach_window{5000};
  Duration idle_return{30000};
  std::uint32_t sessions_per_uid = 256;
  std::uint32_t requests_per_second = 1000;
  bool fail_open = false;

  friend bool operator==(const BrokerConfig&, const BrokerConfig&) = default;
};

struct JobConfig {
  std::string name;
  std::optional<Amount> guarantee;  // none: 0. A fraction is of the pool. `share` fills this and limit
  std::optional<Amount> limit;      // none: the whole pool
  std::int32_t priority = 0;        // higher is served first
  Hold hold = Hold::attached;
  bool lend = true;
  ReportRule report = ReportRule::automatic;
  Overdue overdue = Overdue::deny;
  Bytes library_room{};
  Duration wait{10000};
  Scrub scrub = Scrub::cross_owner;
  ReturnRule return_rule = ReturnRule::automatic;
  Transport transport = Transport::vmm;
  Serve serve = Serve::credit;
  std::vector<UserRule> users;  // empty: whoever reaches the socket. The file cannot write an empty list

  friend bool operator==(const JobConfig&, const JobConfig&) = default;
};

struct AdhocConfig {
  Amount max_guarantee = Fraction{1, 2};  // of one `run --share`
  Amount max_per_user = Fraction{1, 2};   // of all of one uid's together

  friend bool operator==(const AdhocConfig&, const AdhocConfig&) = default;
};

struct Config {
  std::string file;  // as it was named, for messages
  BrokerConfig broker;
  std::vector<JobConfig> jobs;  // in the order of the file
  AdhocConfig adhoc;
  std::map<std::string, int, std::less<>>
      lines;  // "broker.pool", "jobs.trainer.share", "jobs.trainer" -> line

  std::map<std::string, std::string, std::less<>> texts;  // "jobs.trainer.share" -> 0.5-0.8, as written

  [[nodiscard]] const JobConfig* find_job(std::string_view name) const;
  // "apportion.toml:14" of a key, of its job or table where the key is not written, else "apportion.toml".
  [[nodiscard]] std::string where(std::string_view key) const;
  // What the file holds for a key, in quotes and fit for a message; `otherwise` where the key is not written.
  [[nodiscard]] std::string written(std::string_view key, const std::string& otherwise) const;
};

// Both of these return Errc::invalid with "FILE:LINE: what is wrong, and what to write": the first error in
// the file's order. `file` is used in messages only. `names` resolves users and groups.
[[nodiscard]] Result<Config> parse_config(std::string_view text, std::string file, const Names& names);
// Reads the file first; not_found or denied or system where it cannot be read.
[[nodiscard]] Result<Config> read_config(const std::string& path, const Names& names);
// All errors of a text, in the file's order; empty where it is good. A syntax error hides what follows it.
[[nodiscard]] std::vector<std::string> config_errors(std::string_view text, std::string file,
                                                     const Names& names);

// A file that parses to the same Config (all keys written out).
[[nodiscard]] std::string to_toml(const Config& config);

// F41, C20: what a running broker may take over from a new file. Refuses, with file and line, a change of
// device, pool, chunk or reserve: they need a restart.
[[nodiscard]] Status check_reload(const Config& running, const Config& next);

// Whether `name` can be a job's name; the error says what a name is made of.
[[nodiscard]] Status check_job_name(std::string_view name);

}  // namespace apportion
