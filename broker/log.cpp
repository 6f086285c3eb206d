#include "broker/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>

namespace apportion::log {
namespace {

// F24: a job name or label comes from a client and must not forge a line or a field.
void append_value(std::string& out, std::string_view value) {
  const bool plain = !value.empty() && std::none_of(value.begin(), value.end(), [](unsigned char c) {
    return c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f || c == 0xc2;
  });
  if (plain) {
    out += value;
    return;
  }
  out += '"';
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto c = static_cast<unsigned char>(value[i]);
    // Control characters, and those of U+0080 to U+009F: terminals obey them too.
    const bool second_set = c == 0xc2 && i + 1 < value.size() && (value[i + 1] & 0xe0) == 0x80;
    if (c < ' ' || c == 0x7f || second_set) {
      out += '?';
      i += second_set ? 1 : 0;
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += value[i];
  }
  out += '"';
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void open(const char* who) {
  auto logger = spdlog::stderr_logger_mt(who);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z level=%l who=%n %v");
  spdlog::set_default_logger(logger);
  const char* wanted = std::getenv("APPORTION_LOG");
  const std::string_view word = wanted == nullptr ? "info" : wanted;
  if (word == "warning") {
    spdlog::set_level(spdlog::level::warn);
  } else if (word == "error") {
    spdlog::set_level(spdlog::level::err);
  } else if (word == "off") {
    spdlog::set_level(spdlog::level::off);
  }
}

void check_level() {
  const char* wanted = std::getenv("APPORTION_LOG");
  const std::string_view word = wanted == nullptr ? "info" : wanted;
  for (const std::string_view known : {"info", "warning", "error", "off"})
    if (word == known) return;
  warning("config", {{"APPORTION_LOG", std::string(word)}, {"remedy", "use info, warning, error or off"}});
}

std::string line(std::string_view event, std::span<const Field> fields) {
  std::string text = "event=";
  append_value(text, event);
  for (const auto& [key, value] : fields) {
    text += ' ';
    text += key;
    text += '=';
    append_value(text, value);
  }
  return text;
}

void write(Level level, std::string_view event, std::span<const Field> fields) {
  if (!spdlog::should_log(to_spdlog(level))) return;
  if (level != Level::error) {
    static std::mutex mutex;
    static Throttle throttle;
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    const std::lock_guard lock(mutex);
    const Throttle::Verdict verdict =
        throttle.line_at(std::chrono::duration_cast<std::chrono::seconds>(since).count());
    if (!verdict.write) return;
    if (verdict.left_out != 0)
      spdlog::warn("event=log left_out={} why=\"more than {} lines a second\"", verdict.left_out,
                   kMostASecond);
  }
  spdlog::log(to_spdlog(level), "{}", line(event, fields));
}
void info(std::string_view event, std::initializer_list<Field> fields) {
  write(Level::info, event, {fields.begin(), fields.size()});
}
void warning(std::string_view event, std::initializer_list<Field> fields) {
  write(Level::warning, event, {fields.begin(), fields.size()});
}
void error(std::string_view event, std::initializer_list<Field> fields) {
  write(Level::error, event, {fields.begin(), fields.size()});
}

}  // namespace apportion::log
