// Questions about bytes and who is billed for them: 4, 8, 11, 12, 14.
#include <signal.h>

#include "question.hpp"

namespace apportion::conformance {

TEST_CASE("question 4: is a fresh cuMemCreate zero after a pattern of a dead process?", "[question]") {
  expected("zero on most bare-metal Linux; never relied upon");
  Scene scene({.environment = {"CUDASIM_DIRTY=1"}});
  constexpr std::uint64_t kPattern = 0x4444444444444444;
  constexpr std::size_t kSamples = 256;
  const std::size_t most = scene.free_bytes() * 3 / 4 / kChunk * kChunk;
  {
    Peer owner = scene.with_context();
    const PeerChunk chunk = owner.mapped_chunk(most);
    // The simulator's bytes are real ones: there only the samples are written.
    if (!on_simulator()) REQUIRE(owner.fill(chunk.address, most, 0x44) == kOk);
    for (std::size_t i = 0; i < kSamples; ++i)
      REQUIRE(owner.write_word(chunk.address + most / kSamples * i / 8 * 8, kPattern) == kOk);
    owner.kill();
  }
  Peer next = scene.with_context();
  std::uint64_t handle = 0;
  REQUIRE(eventually([&] { return next.create(most, &handle) == kOk; }));
  const PeerChunk fresh = next.map_handle(handle, most);
  std::size_t zero = 0;
  std::size_t old = 0;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::uint64_t word = next.word(fresh.address + most / kSamples * i / 8 * 8);
    if (word == 0) ++zero;
    if (word == kPattern) ++old;
  }
  seen(joined({mib(most), std::to_string(kSamples) + " samples", std::to_string(zero) + " zero",
               std::to_string(old) + " of the dead process"}));
}

TEST_CASE("question 8: NVML's bytes for creator, importer, fd-only, managed", "[question]") {
  expected(
      "the creator is billed; importer and nobody for an fd alone are not; managed is not or only in part");
  Scene scene;
  Peer creator = scene.with_context();
  Peer importer = scene.with_context();
  Peer reader = scene.started();
  constexpr std::size_t kMuch = 16 * kChunk;
  const auto billed = [&](const Peer& peer) {
    std::size_t bytes = 0;
    ::poll(nullptr, 0, 300);  // NVML is late; how late is not the question
    const Answer answer = reader.nvml_process(peer.pid(), &bytes);
    return answer.ok() ? mib(bytes) : to_text(answer);
  };
  const auto used = [&] {
    std::size_t bytes = 0;
    const Answer answer = reader.nvml_used(&bytes);
    return answer.ok() ? mib(bytes) : to_text(answer);
  };
  std::vector<std::string> lines;
  lines.push_back("before: creator " + billed(creator) + ", importer " + billed(importer) + ", device " +
                  used());
  std::uint64_t handle = 0;
  REQUIRE(creator.create(kMuch, &handle) == kOk);
  const OwnedFd fd = creator.exported(handle);
  const std::uint64_t imported = importer.imported(fd);
  const PeerChunk mapped = importer.map_handle(imported, kMuch);
  lines.push_back("1024 MiB created and imported: creator " + billed(creator) + ", importer " +
                  billed(importer) + ", device " + used());
  REQUIRE(creator.release(handle) == kOk);
  lines.push_back("released by its creator: creator " + billed(creator) + ", importer " + billed(importer) +
                  ", device " + used());
  REQUIRE(importer.unmap(mapped.address, kMuch) == kOk);
  REQUIRE(importer.release(imported) == kOk);
  lines.push_back("held by an fd alone: creator " + billed(creator) + ", importer " + billed(importer) +
                  ", device " + used());
  std::uint64_t managed = 0;
  if (importer.alloc_managed(kMuch, &managed).ok())
    lines.push_back("1024 MiB managed: importer " + billed(importer));
  seen(joined(lines));
}

TEST_CASE("question 11: size of a context, and of a process that only called cuInit", "[question]") {
  expected("100 to 600 MiB a context; next to nothing for cuInit");
  Scene scene;
  const std::size_t before = scene.free_bytes();
  Peer peer = scene.started();
  const std::size_t after_init = scene.free_bytes();
  REQUIRE(peer.context() == kOk);
  const std::size_t after_context = scene.free_bytes();
  const auto gone = [](std::size_t high, std::size_t low) { return high > low ? mib(high - low) : "0 MiB"; };
  seen(joined({"cuInit: " + gone(before, after_init), "context: " + gone(after_init, after_context)}));
}

TEST_CASE("question 12: time from SIGKILL of an importer to free memory, with and without a forked child",
          "[question]") {
  expected("some ms up to 500 ms; with a forked child not before the child has ended");
  Scene scene({.environment = {"CUDASIM_DEATH_MS=0-500"}});
  constexpr std::size_t kMuch = 32 * kChunk;
  const auto importer_with_last_reference = [&] {
    Peer exporter = scene.with_context();
    Peer importer = scene.with_context();
    std::uint64_t handle = 0;
    REQUIRE(exporter.create(kMuch, &handle) == kOk);
    REQUIRE(importer.map_handle(importer.imported(exporter.exported(handle)), kMuch).address != 0);
    return importer;
  };
  std::vector<std::string> lines;
  const std::size_t idle = scene.free_bytes();
  {
    Peer importer = importer_with_last_reference();
    const Stopwatch since_kill;
    importer.kill();
    const double dead = since_kill.ms();
    const bool back = scene.free_becomes(idle);
    lines.push_back("alone: dead after " + ms(dead) + ", memory " +
                    (back ? "back after " + ms(since_kill.ms()) : "not back"));
  }
  {
    Peer importer = importer_with_last_reference();
    Reply child;
    REQUIRE(importer.call(Op::fork_idle, {}, &child) == kOk);
    importer.kill();
    const bool held = !eventually([&] { return scene.free_bytes() + kSlack >= idle; }, 2000);
    lines.push_back(std::string("with a forked child: ") +
                    (held ? "not back after 2 s" : "back while the child lives"));
    const Stopwatch since_kill;
    ::kill(static_cast<pid_t>(child.value[0]), SIGKILL);
    const bool back = scene.free_becomes(idle);
    lines.push_back(back ? "back " + ms(since_kill.ms()) + " after the child's SIGKILL"
                         : "not back after the child's SIGKILL");
  }
  seen(joined(lines));
}

TEST_CASE("question 14: handles and fds at 2 MiB over the whole device", "[question]") {
  expected("OUT_OF_MEMORY when the device is full, not before; fds end at RLIMIT_NOFILE");
  Scene scene({.observer = false});
  Peer peer = scene.started();
  Reply counts;
  constexpr std::uint64_t kLimitMs = 30'000;
  const Answer answer = peer.call(Op::whole_device, {2 * kMiB, kLimitMs}, &counts);
  seen(joined({told("probe", answer), std::to_string(counts.value[0]) + " handles",
               std::to_string(counts.value[1]) + " fds", std::to_string(counts.value[2]) + " ms",
               told("ended by", Answer{static_cast<CUresult>(counts.value[3])})}));
}

}  // namespace apportion::conformance
