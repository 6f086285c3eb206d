// The log: one line per event that a person must know about, as key=value.
//
// Promises: one line whatever the values hold (quotes and control characters are escaped), and at most
// kMostASecond lines a second below `error`: a client that is refused a thousand times a second must not fill
// the disk; what was left out is counted in a line. Never: includes spdlog here; that stays in the .cpp.
// Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace apportion::log {

enum class Level { info, warning, error };
using Field = std::pair<std::string, std::string>;

// `who` stands in each line: "keeper" or "broker". The least level shown comes from APPORTION_LOG: "info"
// (default), "warning", "error" or "off"; another word means "info".
void open(const char* who);
// Another word is reported in one line: by the keeper, for the brokers that it starts too.
void check_level();

void write(Level level, std::string_view event, std::span<const Field> fields);
void info(std::string_view event, std::initializer_list<Field> fields);
void warning(std::string_view event, std::initializer_list<Field> fields);
void error(std::string_view event, std::initializer_list<Field> fields);

inline constexpr std::uint32_t kMostASecond = 100;

// Counts the lines of each second, by a clock that its caller brings.
class Throttle {
 public:
  struct Verdict {
    bool write = true;
    std::uint64_t left_out = 0;  // since the last line that was written; to be said before this one
  };
  [[nodiscard]] Verdict line_at(std::int64_t second) {
    if (second != second_) count_ = 0;
    second_ = second;
    if (count_ >= kMostASecond) {
      ++left_out_;
      return {false, 0};
    }
    ++count_;
    return {true, std::exchange(left_out_, 0)};
  }

 private:
  std::int64_t second_ = -1;
  std::uint32_t count_ = 0;
  std::uint64_t left_out_ = 0;
};

// event=refused job=trainer reason="two words": the text of one line, without time and level.
[[nodiscard]] std::string line(std::string_view event, std::span<const Field> fields);

}  // namespace apportion::log
