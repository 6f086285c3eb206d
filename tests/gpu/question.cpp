// Printing of questions: tests/gpu/question.hpp.
#include "question.hpp"

#include <cstdio>

namespace apportion::conformance {

namespace {

// The suite's own main reports on standard output; there the answers must not disturb it.
#ifdef BARE_TESTS
FILE* const answers = stdout;
#else
FILE* const answers = stderr;
#endif

}  // namespace

void expected(const std::string& text) {
  std::fprintf(answers, "  expected: %s\n", text.c_str());
}

void seen(const std::string& text) {
  std::fprintf(answers, "  seen:     %s\n", text.c_str());
  std::fflush(answers);
}

std::string told(const std::string& call, Answer answer) {
  return call + ": " + to_text(answer);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts)
    all += (all.empty() ? "" : "; ") + part;
  return all;
}

std::string mib(std::size_t bytes) {
  return std::to_string((bytes + kMiB / 2) / kMiB) + " MiB";
}

std::string ms(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", value);
  return text;
}

}  // namespace apportion::conformance
