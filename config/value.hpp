// One value of the file while it is read, free of toml++: what was written, where it stands, and where
// complaints about it go. A taker returns none after it complained, so that reading goes on and all errors
// can be shown. Inner header of config/: only parse.cpp and key_tables.cpp include it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/sizes.hpp"

namespace apportion {

struct Written;
using WrittenList = std::vector<Written>;

// What a key can hold. Anything else comes as its description: "a table", "a date or a time".
struct Other {
  const char* what;
};
struct Written {
  std::variant<std::string, std::int64_t, double, bool, WrittenList, Other> value;

  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&value);
  }
};

// As a message shows it: "5O%" or "nan" in quotes, a table.
[[nodiscard]] std::string shown(const Written& written);

struct ConfigError {
  int line;
  std::string text;  // with file and line
};

class Value {
 public:
  // `path` is the key's, such as "jobs.trainer.limit". `file` and `errors` outlive this.
  Value(Written written, std::string path, int line, const std::string& file,
        std::vector<ConfigError>& errors)
      : written_(std::move(written)), path_(std::move(path)), line_(line), file_(file), errors_(errors) {}

  [[nodiscard]] const Written& written() const { return written_; }
  [[nodiscard]] bool says_auto() const;

  void refuse(const std::string& what);
  void refuse_type(const std::string& wanted);

  [[nodiscard]] std::optional<Amount> amount();
  [[nodiscard]] std::optional<Amount> amount_above_zero();
  [[nodiscard]] std::optional<Bytes> bytes();
  [[nodiscard]] std::optional<Share> share();
  [[nodiscard]] std::optional<Duration> duration();
  [[nodiscard]] std::optional<bool> boolean();
  [[nodiscard]] std::optional<std::int64_t> integer(std::int64_t least, std::int64_t most);

  // What `parse` makes of a string, or of the digits of a bare integer, which every grammar refuses in its
  // own words.
  template <typename T>
  [[nodiscard]] std::optional<T> spelled(Result<T> (*parse)(std::string_view), const char* wanted) {
    const std::string* text = written_.as<std::string>();
    const std::int64_t* number = written_.as<std::int64_t>();
    if (text == nullptr && number == nullptr) {
      refuse_type(wanted);
      return std::nullopt;
    }
    Result<T> result = parse(text != nullptr ? *text : std::to_string(*number));
    if (result) return *std::move(result);
    refuse(result.error().message);
    return std::nullopt;
  }

  // The value whose to_text() is written here.
  template <typename Enum, std::size_t N>
  [[nodiscard]] std::optional<Enum> word(const std::array<Enum, N>& values) {
    const std::string* text = written_.as<std::string>();
    std::string choices;
    for (const Enum value : values) {
      if (text != nullptr && *text == to_text(value)) return value;
      choices += (choices.empty() ? "\"" : " or \"") + std::string{to_text(value)} + "\"";
    }
    if (text == nullptr) {
      refuse_type(choices);
    } else {
      refuse(shown(written_) + " is not known; write " + choices);
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<Fraction> fraction_of(double number);

  Written written_;
  std::string path_;
  int line_;
  const std::string& file_;
  std::vector<ConfigError>& errors_;
};

}  // namespace apportion
