// Verbs that are documented and not there yet: one line that says so, and what works instead.
#pragma once

#include <string>

namespace apportion {

// Empty where `verb` is not planned.
[[nodiscard]] std::string planned_verb(const std::string& verb);

}  // namespace apportion
