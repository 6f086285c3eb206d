// Names of result codes: tests/conformance/answer.hpp.
#include "answer.hpp"

#include <ostream>

namespace apportion::conformance {
namespace {

struct Name {
  CUresult code;
  const char* text;
};
#define NAMED(code) \
  { CUDA_ERROR_##code, #code }
constexpr Name kNames[] = {
    {CUDA_SUCCESS, "OK"},
    NAMED(INVALID_VALUE),
    NAMED(OUT_OF_MEMORY),
    NAMED(NOT_INITIALIZED),
    NAMED(DEINITIALIZED),
    NAMED(NO_DEVICE),
    NAMED(INVALID_DEVICE),
    NAMED(INVALID_CONTEXT),
    NAMED(MAP_FAILED),
    NAMED(ALREADY_MAPPED),
    NAMED(NOT_MAPPED),
    NAMED(INVALID_HANDLE),
    NAMED(ILLEGAL_STATE),
    NAMED(NOT_FOUND),
    NAMED(NOT_READY),
    NAMED(ILLEGAL_ADDRESS),
    NAMED(LAUNCH_FAILED),
    NAMED(NOT_PERMITTED),
    NAMED(NOT_SUPPORTED),
    NAMED(STREAM_CAPTURE_UNSUPPORTED),
    NAMED(STREAM_CAPTURE_INVALIDATED),
    NAMED(STREAM_CAPTURE_IMPLICIT),
    NAMED(STREAM_CAPTURE_WRONG_THREAD),
    NAMED(CONTEXT_IS_DESTROYED),
    NAMED(UNKNOWN),
};
#undef NAMED

}  // namespace

std::string to_text(Answer answer) {
  if (answer.died) return "the process died";
  for (const Name& name : kNames)
    if (name.code == answer.code) return name.text;
  return "error " + std::to_string(static_cast<int>(answer.code));
}

std::ostream& operator<<(std::ostream& out, Answer answer) {
  return out << to_text(answer);
}

}  // namespace apportion::conformance
