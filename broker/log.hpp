// The log: one line per event that a person must know about, as key=value.
//
// Promises: one line whatever the values hold (quotes and control characters are escaped). Never: includes
// spdlog here; that stays in the .cpp. Thread-safe.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace apportion::log {

enum class Level { info, warning, error };
using Field = std::pair<std::string, std::string>;

// `who` stands in each line: "keeper" or "broker". The least level shown comes from APPORTION_LOG: "info"
// (default), "warning", "error" or "off"; another word is reported in one line and means "info".
void open(const char* who);

void write(Level level, std::string_view event, std::span<const Field> fields);
void info(std::string_view event, std::initializer_list<Field> fields);
void warning(std::string_view event, std::initializer_list<Field> fields);
void error(std::string_view event, std::initializer_list<Field> fields);

// event=granted job=trainer reason="two words": the text of one line, without time and level.
[[nodiscard]] std::string line(std::string_view event, std::span<const Field> fields);

}  // namespace apportion::log
