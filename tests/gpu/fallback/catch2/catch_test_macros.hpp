// The few Catch2 macros that the conformance suite and the questions use, for a machine that has a compiler
// and nothing else. tests/gpu/run.sh always builds with this one, so that there is one way, and it is tested.
//
// Owns: the list of tests and the checks of the running one. Promises: TEST_CASE, CHECK, REQUIRE, SKIP, INFO,
// UNSCOPED_INFO, CAPTURE and SUCCEED mean what Catch2 3 means by them; sections, generators and matchers are
// left out. Checks may be made by one thread at a time.
#pragma once

#include <sstream>
#include <string>
#include <type_traits>

// For sources that report differently under this main.
#define BARE_TESTS 1

namespace bare {

template <typename T>
std::string printed(const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_enum_v<T>)
    return std::to_string(static_cast<long long>(value));
  else {
    std::ostringstream out;
    out << value;
    return out.str();
  }
}

struct Outcome {
  bool holds = false;
  std::string seen;  // "INVALID_VALUE == OK"
};

// The left side of a checked expression: `Split() << a == b` keeps both sides for the report.
template <typename T>
class Left {
 public:
  explicit Left(const T& value) : value_(value) {}
  operator Outcome() const { return {static_cast<bool>(value_), std::string(value_ ? "true" : "false")}; }

  template <typename U>
  Outcome operator==(const U& right) const {
    return {value_ == right, printed(value_) + " == " + printed(right)};
  }
  template <typename U>
  Outcome operator!=(const U& right) const {
    return {value_ != right, printed(value_) + " != " + printed(right)};
  }
  template <typename U>
  Outcome operator<(const U& right) const {
    return {value_ < right, printed(value_) + " < " + printed(right)};
  }
  template <typename U>
  Outcome operator<=(const U& right) const {
    return {value_ <= right, printed(value_) + " <= " + printed(right)};
  }
  template <typename U>
  Outcome operator>(const U& right) const {
    return {value_ > right, printed(value_) + " > " + printed(right)};
  }
  template <typename U>
  Outcome operator>=(const U& right) const {
    return {value_ >= right, printed(value_) + " >= " + printed(right)};
  }

 private:
  const T& value_;
};

struct Split {
  template <typename T>
  Left<T> operator<<(const T& value) const {
    return Left<T>(value);
  }
};

struct Failed {};   // thrown by REQUIRE
struct Skipped {};  // thrown by SKIP

using Body = void (*)();
bool add(const char* name, const char* tags, Body body);
void check(const char* expression, const Outcome& outcome, const char* file, int line, bool required);
[[noreturn]] void skip(const std::string& reason);
void note_once(const std::string& text);

// A note that is printed with the failures of its scope.
class Note {
 public:
  explicit Note(const std::string& text);
  ~Note();
  Note(const Note&) = delete;
  Note& operator=(const Note&) = delete;
};

}  // namespace bare

#define BARE_JOIN2(a, b) a##b
#define BARE_JOIN(a, b) BARE_JOIN2(a, b)
#define BARE_TEXT(message) (static_cast<const std::ostringstream&>(std::ostringstream() << message).str())

#define TEST_CASE(name, tags)                                           \
  static void BARE_JOIN(bare_test_, __LINE__)();                        \
  [[maybe_unused]] static const bool BARE_JOIN(bare_added_, __LINE__) = \
      ::bare::add(name, tags, BARE_JOIN(bare_test_, __LINE__));         \
  static void BARE_JOIN(bare_test_, __LINE__)()
#define CHECK(...) ::bare::check(#__VA_ARGS__, ::bare::Split() << __VA_ARGS__, __FILE__, __LINE__, false)
#define REQUIRE(...) ::bare::check(#__VA_ARGS__, ::bare::Split() << __VA_ARGS__, __FILE__, __LINE__, true)
#define SKIP(message) ::bare::skip(BARE_TEXT(message))
#define SUCCEED(message) static_cast<void>(0)
#define INFO(message) const ::bare::Note BARE_JOIN(bare_note_, __LINE__)(BARE_TEXT(message))
#define UNSCOPED_INFO(message) ::bare::note_once(BARE_TEXT(message))
#define CAPTURE(value) INFO(#value " := " << ::bare::printed(value))
