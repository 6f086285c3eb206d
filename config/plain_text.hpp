// The file's text as plain ASCII, before the TOML parser sees it: any text may stand in a comment, and
// nothing but ASCII outside. toml++ 3.3 has undefined behaviour on most non-ASCII letters outside strings.
// Inner header of config/.
#pragma once

#include <string>
#include <string_view>
#include <variant>

namespace apportion {

struct NotPlain {
  int line;  // the first with a byte that is not ASCII outside a comment
};

// `text` with every non-ASCII byte of its comments replaced by "?", line for line the same. A byte order mark
// in front is dropped.
[[nodiscard]] std::variant<std::string, NotPlain> plain_text(std::string_view text);

}  // namespace apportion
