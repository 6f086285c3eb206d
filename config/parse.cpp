// TOML text -> Config: walks the tables, names every key's line, and hands the values to the key tables.
// The one file that includes toml++.
#include "config/config.hpp"
#include "config/find.hpp"
#include "config/key_tables.hpp"
#include "config/keys.hpp"
#include "config/nearest.hpp"
#include "config/plain_text.hpp"
#include "config/value.hpp"
#include "shm/quote.hpp"

// toml++ 3.3 trusts its own checks: "[[[" trips an assertion in parse_key, and where NDEBUG is set the
// compiler may assume that it cannot happen. A config file must not be able to end the broker, so a failed
// check is an exception here, caught in parse_toml.
namespace apportion {
struct ParserCheckFailed {};
[[noreturn]] static void parser_check_failed() {
  throw ParserCheckFailed{};
}
}  // namespace apportion
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : ::apportion::parser_check_failed())
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <variant>

namespace apportion {
namespace {

struct SyntaxError {
  int line;
  std::string what;
};
using Parsed = std::variant<toml::table, SyntaxError>;

std::string_view first_lines(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  while (count-- > 0 && end < text.size())
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return text.substr(0, end);
}

bool fails_own_check(std::string_view text) {
  try {
    static_cast<void>(toml::parse(text));
  } catch (const ParserCheckFailed&) {
    return true;
  } catch (const toml::parse_error&) {
  }
  return false;
}

// The parser reads forward only, so the first n lines fail its check from the culprit on and never before it.
int line_of_failed_check(std::string_view text) {
  std::size_t good = 0;
  std::size_t bad = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  while (good + 1 < bad) {
    const std::size_t middle = good + (bad - good) / 2;
    (fails_own_check(first_lines(text, middle)) ? bad : good) = middle;
  }
  return static_cast<int>(bad);
}

// No exception leaves this function.
Parsed parse_toml(std::string_view text) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return SyntaxError{static_cast<int>(error.source().begin.line), std::string{error.description()}};
  } catch (const ParserCheckFailed&) {
    return SyntaxError{line_of_failed_check(text), "not a key, a table or a comment"};
  }
}

Written written(const toml::node& node) {
  if (const auto* text = node.as_string()) return {text->get()};
  if (const auto* number = node.as_integer()) return {number->get()};
  if (const auto* number = node.as_floating_point()) return {number->get()};
  if (const auto* truth = node.as_boolean()) return {truth->get()};
  if (const toml::array* array = node.as_array()) {
    WrittenList list;
    for (const toml::node& element : *array)
      list.push_back(written(element));
    return {std::move(list)};
  }
  return {Other{node.is_table() ? "a table" : "a date or a time"}};
}

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
    const auto plain = plain_text(text);
    if (const auto* wrong = std::get_if<NotPlain>(&plain)) {
      return refuse_syntax(text, {wrong->line, "only ASCII is understood outside comments"});
    }
    const Parsed toml = parse_toml(std::get<std::string>(plain));
    if (const auto* error = std::get_if<SyntaxError>(&toml)) return refuse_syntax(text, *error);
    for (const auto& [key, node] : std::get<toml::table>(toml))
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
                     [](const ConfigError& a, const ConfigError& b) { return a.line < b.line; });
    std::vector<std::string> texts;
    for (ConfigError& error : errors_)
      texts.push_back(std::move(error.text));
    return texts;
  }
  [[nodiscard]] Config take() { return std::move(config_); }

 private:
  void refuse(int line, const std::string& what) {
    errors_.push_back({line, config_.file + ":" + std::to_string(line) + ": " + what});
  }

  void refuse_syntax(std::string_view text, const SyntaxError& error) {
    const std::size_t before = first_lines(text, static_cast<std::size_t>(error.line) - 1).size();
    std::string_view line = text.substr(before, text.find('\n', before) - before);
    if (line.ends_with('\r')) line.remove_suffix(1);
    refuse(error.line, "not valid TOML: " + printable(error.what) + " in " + in_quotes(line));
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
      return refuse(line, "no table or key " + in_quotes(name) + " here; " + hint);
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      const std::string wanted = name == "jobs" ? "[jobs.NAME]" : "[" + name + "]";
      return refuse(line,
                    name + ": " + shown(written(node)) + " has the wrong type; write a table " + wanted);
    }
    config_.lines[name] = line;
    if (name == "broker") read_keys(*table, name, broker_keys(), config_.broker);
    if (name == "adhoc") read_keys(*table, name, adhoc_keys(), config_.adhoc);
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
      return refuse(line,
                    path + ": " + shown(written(node)) + " has the wrong type; write a table [" + path + "]");
    }
    config_.lines[path] = line;
    job_order_[name] = {key.source().begin.line, key.source().begin.column};
    JobTarget target{{}, {}, names_};
    target.job.name = name;
    read_keys(*table, path, job_keys(), target);
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
      refuse(config_.lines.at(path + ".limit"),
             path + ".limit: " + config_.texts.at(path + ".limit") + " is below the guarantee " +
                 config_.texts.at(path + ".guarantee") + "; raise the limit or lower the guarantee");
    }
  }

  template <typename Target>
  void read_keys(const toml::table& table, const std::string& path, std::span<const Key<Target>> keys,
                 Target& target) {
    for (const auto& [key, node] : table) {
      const std::string name{key.str()};
      const int line = line_of(key);
      const auto known =
          std::find_if(keys.begin(), keys.end(), [&](const Key<Target>& one) { return name == one.name; });
      if (known == keys.end()) {
        refuse(line, "[" + path + "] has no key " + in_quotes(name) + "; " + hint_for(name, keys));
        continue;
      }
      const std::string key_path = path + "." + name;
      config_.lines[key_path] = line;
      config_.texts[key_path] = shown(written(node));
      Value value{written(node), key_path, line, config_.file, errors_};
      known->read(value, target);
    }
  }

  template <typename Target>
  static std::string hint_for(const std::string& name, std::span<const Key<Target>> keys) {
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
  std::vector<ConfigError> errors_;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> job_order_;  // name -> line, column
};

}  // namespace

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
