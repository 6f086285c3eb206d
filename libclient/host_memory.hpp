// What is done where the host has no memory left (F31): the call fails, and what it has done so far stays
// known.
//
// Never: takes host memory itself. Everything between a driver call that maps or unmaps and the note of it
// must not throw: errors are copied with copy_of, and callables are passed as Work.
#pragma once

#include <new>
#include <type_traits>

#include "shm/result.hpp"

namespace apportion {

inline Error no_host_memory() {
  return {Errc::out_of_memory, "no host memory"};  // so short that it is no allocation itself
}

// The same error, with a shorter text where the host has no memory for its own.
inline Error copy_of(const Error& error) noexcept {
  try {
    return error;
  } catch (const std::bad_alloc&) {
    return {error.code, "no host memory"};
  }
}

// The call's answer, or no_host_memory().
template <typename Call>
auto shielded(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return no_host_memory();
  }
}

// A reference to something to run, for the length of a call: unlike std::function it owns nothing.
class Work {
 public:
  template <typename Call>
  requires(!std::is_same_v<std::remove_cvref_t<Call>, Work>) Work(Call&& call)
  noexcept
      : call_(&call), run_([](const void* what) -> Status {
          return (*static_cast<const std::remove_reference_t<Call>*>(what))();
        }) {}
  Status operator()() const { return run_(call_); }

 private:
  const void* call_;
  Status (*run_)(const void*);
};

}  // namespace apportion
