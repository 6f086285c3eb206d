#include "cli/planned.hpp"

#include <array>

namespace apportion {
namespace {

struct Planned {
  const char* verb;
  const char* now;
};
constexpr std::array<Planned, 3> kPlanned{{
    {"run", "programs take part by linking libapportion now (examples/c, examples/cpp)"},
    {"top", "apportion status shows one moment now"},
    {"why",
     "the error of a refused call has its reason now, and apportion status shows who holds the memory"},
}};

}  // namespace

std::string planned_verb(const std::string& verb) {
  for (const Planned& planned : kPlanned)
    if (verb == planned.verb) return "apportion " + verb + " comes with a later version; " + planned.now;
  return {};
}

}  // namespace apportion
