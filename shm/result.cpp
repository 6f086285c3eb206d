#include "shm/result.hpp"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace apportion {

const char* to_text(Errc code) {
  switch (code) {
    case Errc::invalid:
      return "invalid";
    case Errc::not_found:
      return "not_found";
    case Errc::denied:
      return "denied";
    case Errc::quota:
      return "quota";
    case Errc::out_of_memory:
      return "out_of_memory";
    case Errc::driver:
      return "driver";
    case Errc::system:
      return "system";
    case Errc::protocol:
      return "protocol";
    case Errc::disconnected:
      return "disconnected";
    case Errc::not_attached:
      return "not_attached";
    case Errc::busy:
      return "busy";
    case Errc::timed_out:
      return "timed_out";
  }
  return "unknown";
}

Error system_error(std::string what, int saved_errno) {
  return {Errc::system, std::move(what) + ": " + std::generic_category().message(saved_errno)};
}

void broken_invariant(const char* what, const char* file, int line) noexcept {
  std::fprintf(stderr, "apportion: broken invariant: %s (%s:%d)\n", what, file, line);
  std::abort();
}

}  // namespace apportion
