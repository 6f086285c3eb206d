// Questions about cost and about stream captures: 9, 10.
#include <cstring>

#include "question.hpp"

namespace apportion::conformance {

TEST_CASE("question 9: create, map, set access, unmap, release, export, import at 2, 16, 64, 256, 1024 MiB",
          "[question]") {
  expected(
      "on A100: create 193 us, map 1.5, set access 36, unmap 26 at 2 MiB; cost is per handle, not per byte");
  Scene scene({.observer = false});
  static constexpr const char* kNames[] = {"create",  "map",    "set access", "unmap",
                                           "release", "export", "import"};
  Peer peer = scene.with_context();
  for (const std::size_t size : {2, 16, 64, 256, 1024}) {
    Reply reply;
    const Answer answer = peer.call(Op::time_calls, {size * kMiB}, &reply);
    std::uint64_t ns[8] = {};
    std::memcpy(ns, reply.blob, sizeof ns);
    std::vector<std::string> parts;
    if (!answer.ok()) parts.push_back(told("probe", answer));
    for (std::size_t call = 0; call < std::size(kNames) && answer.ok(); ++call)
      parts.push_back(std::string(kNames[call]) + " " + std::to_string(ns[call] / 1000) + "." +
                      std::to_string(ns[call] / 100 % 10) + " us");
    seen(std::to_string(size) + " MiB: " + joined(parts) + (on_simulator() ? " (simulated driver)" : ""));
  }
}

TEST_CASE("question 10: which calls spoil a GLOBAL capture in another thread", "[question]") {
  expected("cuMemAlloc and cuMemFree do; of the VMM calls it is open");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  for (std::uint64_t which = 0;; ++which) {
    Reply reply;
    const Answer answer = peer.call(Op::capture_probe, {which}, &reply);
    if (answer == kInvalidValue && reply.blob[0] == '\0') break;
    const std::string name(reply.blob, ::strnlen(reply.blob, sizeof reply.blob));
    if (!answer.ok()) {
      seen(told(name.empty() ? "probe" : name, answer));
      continue;
    }
    seen(joined({told(name, Answer{static_cast<CUresult>(reply.value[0])}),
                 told("the capture", Answer{static_cast<CUresult>(reply.value[1])})}));
  }
}

}  // namespace apportion::conformance
