// Questions that need a running kernel: 13, 18.
#include "question.hpp"

namespace apportion::conformance {
namespace {

// About a second of work on any device; an upper bound, so that nothing runs for ever.
constexpr std::uint64_t kRounds = 2'000'000;

}  // namespace

TEST_CASE("question 13: unmap while a kernel runs on the range", "[question]") {
  expected("unmap waits for the kernel, or the kernel ends with ILLEGAL_ADDRESS");
  DEVICE_ONLY("launches do nothing there");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  REQUIRE(peer.touch(chunk.address) == kOk);  // the module is loaded before the clock runs
  const Answer launch = peer.call(Op::spin, {chunk.address, kRounds});
  const Answer running = peer.query();
  const Stopwatch watch;
  const Answer unmap = peer.unmap(chunk.address, kChunk);
  const double unmap_ms = watch.ms();
  const Answer after = peer.synchronize();
  seen(joined({told("launch", launch), told("query", running), told("unmap", unmap),
               "unmap took " + ms(unmap_ms), told("synchronise", after), "all took " + ms(watch.ms())}));
}

TEST_CASE("question 18: does the killed process's kernel still write after its death was seen?",
          "[question]") {
  expected("open: it decides what a death proves");
  DEVICE_ONLY("launches do nothing there");
  Scene scene({.observer = false});
  Peer holder = scene.with_context();
  Peer victim = scene.with_context();
  const PeerChunk chunk = holder.mapped_chunk(kChunk);
  const PeerChunk theirs = victim.map_handle(victim.imported(holder.exported(chunk.handle)), kChunk);
  REQUIRE(victim.touch(theirs.address + kChunk / 2) == kOk);
  REQUIRE(holder.fill(chunk.address, 8192, 0) == kOk);
  REQUIRE(victim.call(Op::spin, {theirs.address, 5 * kRounds}) == kOk);
  const bool writes = eventually([&] { return holder.word(chunk.address) != 0; }, 5000);
  const Stopwatch since_kill;
  victim.kill();
  const double dead_ms = since_kill.ms();
  const std::uint64_t at_death = holder.word(chunk.address);
  std::uint64_t last = at_death;
  double last_change_ms = 0;
  while (since_kill.ms() < 3000) {
    const std::uint64_t now = holder.word(chunk.address);
    if (now != last) last_change_ms = since_kill.ms();
    last = now;
  }
  seen(joined({writes ? "the kernel was seen writing" : "the kernel was never seen writing",
               "reaped after " + ms(dead_ms),
               last == at_death ? "no write after that"
                                : "last write seen " + ms(last_change_ms) + " after SIGKILL"}));
}

}  // namespace apportion::conformance
