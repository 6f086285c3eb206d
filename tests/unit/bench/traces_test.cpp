#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "bench/replay.hpp"
#include "bench/traces/catalog.hpp"
#include "bench/traces/pin_hole.hpp"
#include "bench/traces/serving.hpp"
#include "bench/traces/training.hpp"
#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::bench;

namespace {

bool same(const Trace& a, const Trace& b) {
  const auto equal = [](const TraceEvent& x, const TraceEvent& y) {
    return x.action == y.action && x.block == y.block && x.bytes == y.bytes && x.stream == y.stream;
  };
  return a.blocks == b.blocks &&
         std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(), equal);
}

// FNV-1a over every step.
std::uint64_t fingerprint(const Trace& trace) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const Replay::Step& step : Replay(trace).steps)
    for (const std::uint64_t word : {step.bytes, std::uint64_t{step.block}})
      for (int byte = 0; byte < 8; ++byte)
        hash = (hash ^ (word >> (8 * byte) & 0xff)) * 0x100000001b3;
  return hash;
}

// What is wrong with it as a trace; empty where nothing is.
std::string wrong_with(const Trace& trace) {
  std::vector<std::uint64_t> live(trace.blocks);
  for (const TraceEvent& event : trace.events) {
    if (event.block >= trace.blocks) return "a block without a name";
    if (event.action == TraceEvent::Action::allocate) {
      if (live[event.block] != 0) return "allocates what is live";
      if (event.bytes == 0) return "allocates nothing";
      live[event.block] = event.bytes;
    } else {
      if (live[event.block] != event.bytes) return "frees what is not live, or another size";
      live[event.block] = 0;
    }
  }
  return "";
}

struct File {
  explicit File(const std::string& text) {
    path = (std::filesystem::temp_directory_path() / "apportion-trace-XXXXXX").string();
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    ::close(fd);
    std::ofstream(path) << text;
  }
  ~File() { std::filesystem::remove(path); }
  std::string path;
};

std::string refusal(const std::string& lines) {
  const File file("Thread,Time,Action,Pointer,Size,Stream\n" + lines);
  const Result<NamedTrace> trace = trace_of_file(file.path);
  REQUIRE(!trace.ok());
  const std::string& message = trace.error().message;
  REQUIRE(message.rfind(file.path, 0) == 0);
  return message.substr(file.path.size());
}

}  // namespace

TEST_CASE("generated traces free only what they allocated, and are the same for a seed and no other") {
  const auto first = generated_traces(1, true);
  const auto again = generated_traces(1, true);
  const auto other = generated_traces(2, true);
  REQUIRE(first.size() == 3);
  for (std::size_t i = 0; i < first.size(); ++i) {
    INFO(first[i].name << ": " << first[i].parameters);
    CHECK(wrong_with(first[i].trace) == "");
    CHECK(same(first[i].trace, again[i].trace));
    CHECK(!same(first[i].trace, other[i].trace));
    CHECK(first[i].parameters.find("seed=1") != std::string::npos);
  }
}

TEST_CASE("the same seed gives the same traces on every machine") {
  // Pinned: figures of different machines are of the same traces.
  CHECK(fingerprint(training_trace({.layers = 2, .sequence_min = 256, .iterations = 2, .seed = 7})) ==
        0xf5d67e5d91d3572c);
  CHECK(fingerprint(serving_trace({.layers = 2, .steps = 50, .seed = 7})) == 0x47474443af3f7772);
  CHECK(fingerprint(pin_hole_trace({.rounds = 3, .seed = 7})) == 0x666a20a20d46b6d9);
}

TEST_CASE("with recomputation far less is live at the peak of the same training") {
  TrainingShape shape;
  shape.iterations = 1;
  const Replay plain(training_trace(shape));
  shape.recompute = true;
  const Replay recomputed(training_trace(shape));
  CHECK(recomputed.peak_bytes * 2 < plain.peak_bytes);
  CHECK(recomputed.pairs > plain.pairs);
}

TEST_CASE("a page in 32 parts takes as much memory as a whole one, in 32 allocations") {
  ServingShape shape;
  shape.steps = 30;
  const Replay whole(serving_trace(shape));
  shape.page_parts = 32;
  const Replay parts(serving_trace(shape));
  CHECK(parts.peak_bytes == whole.peak_bytes);
  CHECK(whole.small_peak_bytes < parts.small_peak_bytes);
  CHECK(parts.pairs > whole.pairs + 1000);
  CHECK((parts.pairs - whole.pairs) % 31 == 0);
}

TEST_CASE("a replay ends with nothing live, and counts pairs and peaks") {
  TraceMaker maker;
  const auto a = maker.allocate(1000);
  maker.allocate(2 << 20);
  maker.free(a);
  maker.allocate(3000);
  const Replay replay(maker.take());
  CHECK(replay.pairs == 3);
  CHECK(replay.peak_bytes == (2 << 20) + 3000);
  CHECK(replay.small_peak_bytes == 3000);
  CHECK(replay.large_peak_bytes == 2 << 20);
  CHECK(replay.peak_blocks == 2);
  CHECK(replay.steps.size() == 6);
}

TEST_CASE("a user's log is named by its file and replays whole") {
  const Result<NamedTrace> trace = trace_of_file(APPORTION_TRACES "/dl_var_seq.csv");
  REQUIRE(trace.ok());
  CHECK(trace->name == "dl_var_seq");
  CHECK(wrong_with(trace->trace) == "");
}

TEST_CASE("a log that cannot be replayed is refused in one line with the place") {
  CHECK(refusal("0,t,allocate,0x1,512,0\n0,t,allocate,0x1,512,0\n") ==
        ": event 2 allocates a block that is live");
  CHECK(refusal("0,t,free,0x1,512,0\n") == ": event 1 frees a block that is not live");
  CHECK(refusal("0,t,allocate,0x1,0,0\n") == ": event 1 allocates 0 bytes");
  CHECK(refusal("0,t,allocate,0x1,512,0\n") == ": no allocation in it is freed; there is nothing to replay");
  CHECK(refusal("0,t,allocate,0x1,many,0\n") == ":2: not a line of an RMM log: 0,t,allocate,0x1,many,0");
}
