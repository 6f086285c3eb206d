// A value or an Error, for what a caller must handle. A broken invariant aborts instead (`check` below).
//
// Promises: an Error carries one line for a person (what, where, what to do) and a code for a program.
// Never: throws. No exception crosses a C boundary or the broker's strand.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace apportion {

enum class Errc {
  invalid,        // the caller's input is wrong
  not_found,      // what was named does not exist
  denied,         // it exists, and the caller may not have it
  quota,          // above the job's limit, or not grantable now
  out_of_memory,  // the device or the host has no room
  driver,         // the CUDA driver or NVML returned an error
  system,         // a system call failed
  protocol,       // a message or a shared page is malformed or of another version
  disconnected,   // the other side is gone
  not_attached,   // no session: never attached, detached, or a forked child
  busy,           // somebody else has it (a second broker)
  timed_out,      // the deadline passed
};

// "out_of_memory" and so on: the word used in logs and JSON.
[[nodiscard]] const char* to_text(Errc code);

struct Error {
  Errc code{};
  std::string message;
};

// Error with the text of errno appended: "cannot open /x: Permission denied".
[[nodiscard]] Error system_error(std::string what, int saved_errno);

// Ends the process with one line on standard error. For broken invariants only.
[[noreturn]] void broken_invariant(const char* what, const char* file, int line) noexcept;
#define APPORTION_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::apportion::broken_invariant(#condition, __FILE__, __LINE__))

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    APPORTION_CHECK(value_.has_value());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    APPORTION_CHECK(value_.has_value());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    APPORTION_CHECK(value_.has_value());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only where !ok().
  [[nodiscard]] const Error& error() const {
    APPORTION_CHECK(!value_.has_value());
    return error_;
  }

 private:
  std::optional<T> value_;
  Error error_;
};

// Success without a value.
struct Done {};
using Status = Result<Done>;

}  // namespace apportion
