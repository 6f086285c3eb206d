// Runs the tests of a program built with fallback/catch2/: prints question, expected and seen for each, and
// a last line of totals. Exit status 1 where a check failed.
//
//   program [--list] [WORDS]   WORDS: only tests whose name or tags contain them
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace bare {
namespace {

struct Test {
  const char* name;
  const char* tags;
  Body body;
};

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

std::vector<std::string> notes;        // of the scopes that are open
std::vector<std::string> loose_notes;  // until the next check
unsigned failures = 0;                 // of the running test

void print_failure(const char* expression, const std::string& seen, const char* file, int line) {
  ++failures;
  if (failures == 1) std::printf("  expected: every check of the rule holds\n");
  std::printf("  seen:     %s: %s (%s:%d)\n", expression, seen.c_str(), file, line);
  for (const std::string& note : notes)
    std::printf("            with %s\n", note.c_str());
  for (const std::string& note : loose_notes)
    std::printf("            with %s\n", note.c_str());
}

}  // namespace

bool add(const char* name, const char* tags, Body body) {
  tests().push_back({name, tags, body});
  return true;
}

void check(const char* expression, const Outcome& outcome, const char* file, int line, bool required) {
  if (!outcome.holds) print_failure(expression, outcome.seen, file, line);
  loose_notes.clear();
  if (!outcome.holds && required) throw Failed{};
}

void skip(const std::string& reason) {
  std::printf("  seen:     skipped: %s\n", reason.c_str());
  throw Skipped{};
}

void note_once(const std::string& text) {
  loose_notes.push_back(text);
}

Note::Note(const std::string& text) {
  notes.push_back(text);
}
Note::~Note() {
  notes.pop_back();
}

namespace {

// A question says itself what it expected and saw.
bool is_question(const Test& test) {
  return std::strstr(test.tags, "[question]") != nullptr;
}

// Rules and questions come in the order of their numbers, in whatever file they are; the rest comes last.
int number_of(const Test& test) {
  const char* digits = std::strpbrk(test.name, "0123456789:");
  const int number = digits != nullptr ? std::atoi(digits) : 0;
  return number != 0 ? number : 1000;
}

enum class Verdict { passed, failed, skipped };

Verdict run(const Test& test) {
  failures = 0;
  loose_notes.clear();
  std::printf(is_question(test) ? "%s\n" : "question: %s\n", test.name);
  std::fflush(stdout);
  try {
    test.body();
  } catch (const Failed&) {
  } catch (const Skipped&) {
    if (failures == 0) return Verdict::skipped;
  } catch (const std::exception& error) {
    print_failure("the test ends by itself", error.what(), __FILE__, __LINE__);
  }
  if (failures != 0) return Verdict::failed;
  if (!is_question(test)) std::printf("  expected: every check of the rule holds\n  seen:     as expected\n");
  return Verdict::passed;
}

}  // namespace
}  // namespace bare

int main(int count, char** arguments) {
  const bool list = count > 1 && std::strcmp(arguments[1], "--list") == 0;
  const char* words = count > 1 + int{list} ? arguments[1 + int{list}] : "";
  unsigned totals[3] = {};
  std::stable_sort(bare::tests().begin(), bare::tests().end(),
                   [](const auto& a, const auto& b) { return bare::number_of(a) < bare::number_of(b); });
  for (const bare::Test& test : bare::tests()) {
    if (std::strstr(test.name, words) == nullptr && std::strstr(test.tags, words) == nullptr) continue;
    if (list)
      std::printf("%s\n", test.name);
    else
      ++totals[static_cast<int>(bare::run(test))];
    std::fflush(stdout);
  }
  if (!list) std::printf("%u passed, %u failed, %u skipped\n", totals[0], totals[1], totals[2]);
  return totals[1] == 0 ? 0 : 1;
}
