// TOML text -> Config. The one file that knows toml++, and the one table of keys: what is parsed, what
// docs/config.md lists and what an unknown key is compared with are the same three lists below.
//
// Every key has a reader that takes the TOML value, stores it in its target and reports what is wrong.
// Reading goes on after an error, so that all of them can be shown.
#include "config/config.hpp"
#include "config/find.hpp"
#include "config/keys.hpp"
#include "config/quote.hpp"

#define TOML_EXCEPTIONS 0
#define TOML_UNRELEASED_FEATURES 0
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace apportion {
namespace {

struct Found {
  int line;
  std::string text;
};

std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return quoted(text->get());
  if (const auto* number = node.as_integer()) return quoted(std::to_string(number->get()));
  if (const auto* truth = node.as_boolean()) return truth->get() ? "\"true\"" : "\"false\"";
  if (const auto* number = node.as_floating_point()) {
    if (std::isnan(number->get())) return "\"nan\"";
    return quoted(std::to_string(number->get()));
  }
  if (node.is_table()) return "a table";
  return node.is_array() ? "an array" : "a date or a time";
}

// One key's value: where it stands, and where complaints about it go.
class Value {
 public:
  Value(const toml::node& node, std::string path, int line, std::string_view file, std::vector<Found>& errors)
      : node_(node), path_(std::move(path)), line_(line), file_(file), errors_(errors) {}

  [[nodiscard]] const toml::node& node() const { return node_; }

  void refuse(const std::string& what) {
    errors_.push_back({line_, std::string{file_} + ":" + std::to_string(line_) + ": " + path_ + ": " + what});
  }
  void refuse_type(const char* wanted) { refuse(shown(node_) + " has the wrong type; write " + wanted); }

  // Hands the string, or the spelling of a bare integer (which every grammar refuses in its own words), to
  // `parse`. None after an error.
  template <typename Parse>
  [[nodiscard]] auto spelled(Parse parse, const char* wanted)
      -> std::optional<std::decay_t<decltype(*parse(""))>> {
    auto result = [&]() -> decltype(parse("")) {
      if (const auto* text = node_.as_string()) return parse(text->get());
      if (const auto* number = node_.as_integer()) return parse(std::to_string(number->get()));
      return Error{Errc::invalid, shown(node_) + " has the wrong type; write " + wanted};
    }();
    if (result) return *result;
    refuse(result.error().message);
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Fraction> fraction_of_float() {
    const auto* number = node_.as_floating_point();
    if (number == nullptr) return std::nullopt;
    Result<Fraction> fraction = parse_fraction(number->get());
    if (fraction) return *fraction;
    refuse(fraction.error().message);
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Amount> amount() {
    if (!node_.is_floating_point()) {
      return spelled(parse_amount, R"(a size such as "12GiB" or a fraction such as "25%")");
    }
    const std::optional<Fraction> fraction = fraction_of_float();
    return fraction ? std::optional<Amount>{*fraction} : std::nullopt;
  }
  [[nodiscard]] std::optional<Amount> amount_above_zero() {
    std::optional<Amount> value = amount();
    if (value != Amount{0_B}) return value;
    refuse(shown(node_) + " is zero; write a size above it");
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Bytes> bytes() { return spelled(parse_bytes, R"(a size such as "512MiB")"); }
  [[nodiscard]] std::optional<Share> share() {
    if (!node_.is_floating_point())
      return spelled(parse_share, R"(a share such as "0.5", "0.5-0.8" or "0.5+")");
    const std::optional<Fraction> fraction = fraction_of_float();
    return fraction ? std::optional<Share>{{*fraction, *fraction}} : std::nullopt;
  }
  void duration(Duration& target) {
    if (const auto value = spelled(parse_duration, R"(a duration such as "2s" or "500ms")")) target = *value;
  }
  void boolean(bool& target) {
    if (const auto* value = node_.as_boolean()) {
      target = value->get();
    } else {
      refuse_type("true or false");
    }
  }
  template <typename Int>
  void integer(Int& target, std::int64_t least, std::int64_t most) {
    const auto* value = node_.as_integer();
    if (value != nullptr && value->get() >= least && value->get() <= most) {
      target = static_cast<Int>(value->get());
      return;
    }
    const std::string wanted =
        "write a whole number from " + std::to_string(least) + " to " + std::to_string(most);
    refuse(shown(node_) + (value == nullptr ? " has the wrong type; " : " is out of range; ") + wanted);
  }
  // The value whose to_text() is written here.
  template <typename Enum, std::size_t N>
  [[nodiscard]] std::optional<Enum> word(const std::array<Enum, N>& values) {
    const auto* text = node_.as_string();
    std::string choices;
    for (const Enum value : values) {
      if (text != nullptr && text->get() == to_text(value)) return value;
      choices += (choices.empty() ? "\"" : " or \"") + std::string{to_text(value)} + "\"";
    }
    if (text == nullptr) {
      refuse_type(choices.c_str());
    } else {
      refuse(shown(node_) + " is not known; write " + choices);
    }
    return std::nullopt;
  }
  [[nodiscard]] bool says_auto() const {
    const auto* text = node_.as_string();
    return text != nullptr && text->get() == "auto";
  }

 private:
  const toml::node& node_;
  std::string path_;
  int line_;
  std::string_view file_;
  std::vector<Found>& errors_;
};

template <typename T>
void store(T& target, std::optional<std::type_identity_t<T>> value) {
  if (value) target = std::move(*value);
}
template <typename T>
void store(std::optional<T>& target, std::optional<T> value) {
  if (value) target = std::move(value);
}

void read_chunk(Value& value, Bytes& target) {
  const std::optional<Bytes> chunk = value.bytes();
  if (!chunk) return;
  const bool is_power_of_two = chunk->value != 0 && (chunk->value & (chunk->value - 1)) == 0;
  if (is_power_of_two && *chunk >= kMinChunk && *chunk <= kMaxChunk) {
    target = *chunk;
  } else {
    value.refuse(shown(value.node()) + " cannot be the chunk; write 2MiB, 4MiB, 8MiB and so on, up to 1GiB");
  }
}

// A job while it is read: share and guarantee or limit exclude each other.
struct JobTarget {
  JobConfig job;
  std::optional<Share> share;
  const Names& names;
};

void read_users(Value& value, JobTarget& target) {
  const toml::array* users = value.node().as_array();
  if (users == nullptr) return value.refuse_type(R"(a list such as ["alice", "@ml"])");
  // An empty list means nobody to one reader and everybody to another.
  if (users->empty()) {
    return value.refuse(
        "an empty list lets nobody in; name somebody, or leave the key out for whoever reaches the socket");
  }
  for (const toml::node& user : *users) {
    std::string text;
    if (const auto* name = user.as_string()) {
      text = name->get();
    } else if (const auto* id = user.as_integer()) {
      text = std::to_string(id->get());
    } else {
      value.refuse(shown(user) + R"( names nobody; write a user "alice", a uid 1000 or a group "@ml")");
      continue;
    }
    Result<UserRule> rule = parse_user_rule(text, target.names);
    if (rule) {
      target.job.users.push_back(*std::move(rule));
    } else {
      value.refuse(rule.error().message);
    }
  }
}

template <typename Target>
struct Key {
  const char* name;
  const char* default_text;
  void (*read)(Value&, Target&);
};

constexpr std::int64_t kMaxCap = 1'000'000;

constexpr std::array<Key<BrokerConfig>, 11> kBrokerKeys{{
    {"device", "\"0\"",
     [](Value& v, BrokerConfig& b) {
       store(b.device, v.spelled(parse_device, R"(a device such as "0" or "GPU-...", in quotes)"));
     }},
    {"pool", "\"auto\"",
     [](Value& v, BrokerConfig& b) {
       if (!v.says_auto()) store(b.pool, v.amount_above_zero());
     }},
    {"chunk", "\"32MiB\"", [](Value& v, BrokerConfig& b) { read_chunk(v, b.chunk); }},
    {"reserve", "-",
     [](Value& v, BrokerConfig& b) {
       store(b.reserve, v.word(std::array{Reserve::all, Reserve::leased}));
     }},
    {"overhead", "\"auto\"",
     [](Value& v, BrokerConfig& b) {
       if (!v.says_auto()) store(b.overhead, v.amount());
     }},
    {"reclaim_deadline", "\"2s\"",
     [](Value& v, BrokerConfig& b) {
       v.duration(b.reclaim_deadline);
       if (b.reclaim_deadline.count() > 0) return;
       b.reclaim_deadline = BrokerConfig{}.reclaim_deadline;
       v.refuse(shown(v.node()) + " leaves no time to give memory back; write a duration such as \"2s\"");
     }},
    {"reattach_window", "\"5s\"", [](Value& v, BrokerConfig& b) { v.duration(b.reattach_window); }},
    {"idle_return", "\"30s\"", [](Value& v, BrokerConfig& b) { v.duration(b.idle_return); }},
    {"sessions_per_uid", "256", [](Value& v, BrokerConfig& b) { v.integer(b.sessions_per_uid, 1, kMaxCap); }},
    {"requests_per_second", "1000",
     [](Value& v, BrokerConfig& b) { v.integer(b.requests_per_second, 1, kMaxCap); }},
    {"fail_open", "false", [](Value& v, BrokerConfig& b) { v.boolean(b.fail_open); }},
}};

constexpr std::array<Key<JobTarget>, 15> kJobKeys{{
    {"share", "-", [](Value& v, JobTarget& t) { store(t.share, v.share()); }},
    {"guarantee", "\"0B\"", [](Value& v, JobTarget& t) { store(t.job.guarantee, v.amount()); }},
    {"limit", "\"100%\"", [](Value& v, JobTarget& t) { store(t.job.limit, v.amount_above_zero()); }},
    {"priority", "0", [](Value& v, JobTarget& t) { v.integer(t.job.priority, INT32_MIN, INT32_MAX); }},
    {"hold", "\"attached\"",
     [](Value& v, JobTarget& t) {
       store(t.job.hold, v.word(std::array{Hold::attached, Hold::always}));
     }},
    {"lend", "true", [](Value& v, JobTarget& t) { v.boolean(t.job.lend); }},
    {"report", "\"auto\"",
     [](Value& v, JobTarget& t) {
       store(t.job.report,
             v.word(std::array{ReportRule::automatic, ReportRule::guarantee, ReportRule::limit}));
     }},
    {"overdue", "\"deny\"",
     [](Value& v, JobTarget& t) {
       store(t.job.overdue, v.word(std::array{Overdue::deny, Overdue::evict}));
     }},
    {"library_room", "\"0B\"", [](Value& v, JobTarget& t) { store(t.job.library_room, v.bytes()); }},
    {"wait", "\"10s\"", [](Value& v, JobTarget& t) { v.duration(t.job.wait); }},
    {"scrub", "\"cross-owner\"",
     [](Value& v, JobTarget& t) {
       store(t.job.scrub, v.word(std::array{Scrub::cross_owner, Scrub::always, Scrub::never}));
     }},
    {"return", "\"auto\"",
     [](Value& v, JobTarget& t) {
       store(t.job.return_rule,
             v.word(std::array{ReturnRule::automatic, ReturnRule::trusted, ReturnRule::strict}));
     }},
    {"transport", "\"vmm\"",
     [](Value& v, JobTarget& t) {
       store(t.job.transport, v.word(std::array{Transport::vmm, Transport::ipc}));
     }},
    {"serve", "\"credit\"",
     [](Value& v, JobTarget& t) {
       store(t.job.serve, v.word(std::array{Serve::credit, Serve::lease}));
     }},
    {"users", "-", read_users},
}};

constexpr std::array<Key<AdhocConfig>, 2> kAdhocKeys{{
    {"max_guarantee", "\"0.5\"", [](Value& v, AdhocConfig& a) { store(a.max_guarantee, v.amount()); }},
    {"max_per_user", "\"0.5\"", [](Value& v, AdhocConfig& a) { store(a.max_per_user, v.amount()); }},
}};

constexpr std::array<std::string_view, 3> kTables{"broker", "jobs", "adhoc"};

int line_of(const toml::key& key) {
  return static_cast<int>(key.source().begin.line);
}

class FileReader {
 public:
  FileReader(std::string file, const Names& names) : names_(names) { config_.file = std::move(file); }

  void read(std::string_view text) {
    // toml++ counts in 32 bits and keeps the whole tree: nothing that size is a config.
    if (text.size() > kMaxConfigBytes) return refuse(1, "larger than 1 MiB; write a smaller config");
    toml::parse_result result = toml::parse(text, config_.file);
    if (!result) return refuse_syntax(text, result.error());
    for (const auto& [key, node] : result.table())
      read_top(key, node);
    std::sort(config_.jobs.begin(), config_.jobs.end(), [&](const JobConfig& a, const JobConfig& b) {
      return job_order_.at(a.name) < job_order_.at(b.name);
    });
    if (config_.jobs.size() > kMaxJobs) {
      const std::string first_too_many = "jobs." + config_.jobs[kMaxJobs].name;
      refuse(config_.lines.at(first_too_many), "more than 256 jobs; put some of them into one");
    }
  }

  // In the order of the file.
  [[nodiscard]] std::vector<std::string> errors() {
    std::stable_sort(errors_.begin(), errors_.end(),
                     [](const Found& a, const Found& b) { return a.line < b.line; });
    std::vector<std::string> texts;
    for (Found& error : errors_)
      texts.push_back(std::move(error.text));
    return texts;
  }
  [[nodiscard]] Config take() { return std::move(config_); }

 private:
  void refuse(int line, const std::string& what) {
    errors_.push_back({line, config_.file + ":" + std::to_string(line) + ": " + what});
  }

  void refuse_syntax(std::string_view text, const toml::parse_error& error) {
    const int line = static_cast<int>(error.source().begin.line);
    for (int i = 1; i < line && text.find('\n') != std::string_view::npos; ++i) {
      text.remove_prefix(text.find('\n') + 1);
    }
    text = text.substr(0, text.find('\n'));
    if (text.ends_with('\r')) text.remove_suffix(1);
    refuse(line, "not valid TOML: " + printable(error.description()) + " in " + quoted(text));
  }

  void read_top(const toml::key& key, const toml::node& node) {
    const std::string name{key.str()};
    const int line = line_of(key);
    if (std::find(kTables.begin(), kTables.end(), name) == kTables.end()) {
      std::string hint = belongs_to(name);
      if (hint.empty()) {
        const std::string near = nearest(name, kTables);
        hint = near.empty() ? "the tables are [broker], [jobs.NAME] and [adhoc]"
                            : "did you mean \"" + near + "\"?";
      }
      return refuse(line, "no table or key " + quoted(name) + " here; " + hint);
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      const std::string wanted = name == "jobs" ? "[jobs.NAME]" : "[" + name + "]";
      return refuse(line, name + ": " + shown(node) + " has the wrong type; write a table " + wanted);
    }
    config_.lines[name] = line;
    if (name == "broker") read_keys(*table, name, kBrokerKeys, config_.broker);
    if (name == "adhoc") read_keys(*table, name, kAdhocKeys, config_.adhoc);
    if (name == "jobs") {
      for (const auto& [job_key, job] : *table)
        read_job(job_key, job);
    }
  }

  void read_job(const toml::key& key, const toml::node& node) {
    const std::string name{key.str()};
    const std::string path = "jobs." + name;
    const int line = line_of(key);
    if (const Status good = check_job_name(name); !good)
      return refuse(line, "[jobs]: " + good.error().message);
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return refuse(line, path + ": " + shown(node) + " has the wrong type; write a table [" + path + "]");
    }
    config_.lines[path] = line;
    job_order_[name] = {key.source().begin.line, key.source().begin.column};
    JobTarget target{{}, {}, names_};
    target.job.name = name;
    read_keys(*table, path, kJobKeys, target);
    settle_share(*table, path, target);
    config_.jobs.push_back(std::move(target.job));
  }

  void settle_share(const toml::table& table, const std::string& path, JobTarget& target) {
    if (table.contains("share") && (table.contains("guarantee") || table.contains("limit"))) {
      const char* other = table.contains("guarantee") ? "guarantee" : "limit";
      const int line = std::max(config_.lines.at(path + ".share"), config_.lines.at(path + "." + other));
      return refuse(line,
                    path + ": has both share and " + other + "; keep share, or write guarantee and limit");
    }
    if (target.share) {
      target.job.guarantee = target.share->guarantee;
      if (target.share->limit) target.job.limit = *target.share->limit;
    }
    const std::optional<Amount>& guarantee = target.job.guarantee;
    const std::optional<Amount>& limit = target.job.limit;
    // A size and a fraction can only be compared once the pool is known: load() does.
    if (guarantee && limit && guarantee->index() == limit->index() && *limit < *guarantee) {
      refuse(config_.lines.at(path + ".limit"), path + ".limit: " + quoted(spell(*limit)) +
                                                    " is below the guarantee " + quoted(spell(*guarantee)) +
                                                    "; raise the limit or lower the guarantee");
    }
  }

  template <typename Target, std::size_t N>
  void read_keys(const toml::table& table, const std::string& path, const std::array<Key<Target>, N>& keys,
                 Target& target) {
    for (const auto& [key, node] : table) {
      const std::string name{key.str()};
      const int line = line_of(key);
      const auto known =
          std::find_if(keys.begin(), keys.end(), [&](const Key<Target>& one) { return name == one.name; });
      if (known == keys.end()) {
        refuse(line, "[" + path + "] has no key " + quoted(name) + "; " + hint_for(name, keys));
        continue;
      }
      const std::string key_path = path + "." + name;
      config_.lines[key_path] = line;
      Value value{node, key_path, line, config_.file, errors_};
      known->read(value, target);
    }
  }

  template <typename Target, std::size_t N>
  static std::string hint_for(const std::string& name, const std::array<Key<Target>, N>& keys) {
    std::vector<std::string_view> names;
    for (const Key<Target>& key : keys)
      names.emplace_back(key.name);
    if (const std::string home = belongs_to(name); !home.empty()) return home;
    if (const std::string near = nearest(name, names); !near.empty()) return "did you mean \"" + near + "\"?";
    return "docs/config.md lists the keys";
  }

  static std::string belongs_to(const std::string& name) {
    for (const KeyInfo& key : config_keys()) {
      if (key.name != name) continue;
      return "it belongs in [" + (key.table == "jobs" ? std::string{"jobs.NAME"} : key.table) + "]";
    }
    return {};
  }

  Config config_;
  const Names& names_;
  std::vector<Found> errors_;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> job_order_;  // name -> line, column
};

}  // namespace

std::vector<KeyInfo> config_keys() {
  std::vector<KeyInfo> keys;
  for (const auto& key : kBrokerKeys)
    keys.push_back({"broker", key.name, key.default_text});
  for (const auto& key : kJobKeys)
    keys.push_back({"jobs", key.name, key.default_text});
  for (const auto& key : kAdhocKeys)
    keys.push_back({"adhoc", key.name, key.default_text});
  return keys;
}

std::vector<std::string> config_errors(std::string_view text, std::string file, const Names& names) {
  FileReader reader{std::move(file), names};
  reader.read(text);
  return reader.errors();
}

Result<Config> parse_config(std::string_view text, std::string file, const Names& names) {
  FileReader reader{std::move(file), names};
  reader.read(text);
  std::vector<std::string> errors = reader.errors();
  if (!errors.empty()) return Error{Errc::invalid, std::move(errors.front())};
  return reader.take();
}

Result<Config> read_config(const std::string& path, const Names& names) {
  Result<std::string> text = read_config_text(path);
  if (!text) return text.error();
  return parse_config(*text, path, names);
}

}  // namespace apportion
