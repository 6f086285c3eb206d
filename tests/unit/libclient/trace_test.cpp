#include "tests/support/trace.hpp"

#include "tests/support/catch.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("a trace names its blocks in order of first use and keeps markers") {
  const Result<Trace> trace = parse_trace(
      "Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00:000000,allocate,0x7f,256,0\n# iteration 1\n"
      "3,00:00:00:000001,allocate failure,0x0,99,0x10\n0,00:00:00:000002,free,0x7f,256,0\n",
      "sample");
  REQUIRE(trace.ok());
  REQUIRE(trace->events.size() == 4);
  CHECK(trace->blocks == 2);
  CHECK(trace->events[0].bytes == 256);
  CHECK(trace->events[1].action == TraceEvent::Action::marker);
  CHECK(trace->events[2].action == TraceEvent::Action::failure);
  CHECK(trace->events[2].thread == 3);
  CHECK(trace->events[2].stream == 16);
  CHECK(trace->events[3].block == trace->events[0].block);
}

TEST_CASE("a line that is not a trace's is refused with its number and text") {
  const Result<Trace> trace = parse_trace("0,t,allocate,0x1,2,0\n0,t,allocate,0x1,-2,0\n", "sample");
  REQUIRE(!trace.ok());
  CHECK(trace.error().message == "sample:2: not a line of an RMM log: 0,t,allocate,0x1,-2,0");
  CHECK(!parse_trace("0,t,allocate,0x1,2", "s").ok());
  CHECK(!parse_trace("0,t,steal,0x1,2,0", "s").ok());
  CHECK(read_trace("/nonexistent").error().code == Errc::not_found);
}

TEST_CASE("the sample traces can be read, and each frees only what it allocated") {
  for (const char* name : {"dl_fixed_seq", "dl_var_seq", "adv_pinhole"}) {
    const Result<Trace> trace = read_trace(std::string(APPORTION_TRACES) + "/" + name + ".csv");
    REQUIRE(trace.ok());
    CHECK(trace->events.size() == 4000);
    std::vector<std::uint64_t> live(trace->blocks);
    for (const TraceEvent& event : trace->events) {
      std::uint64_t& size = live[event.block];
      if (event.action == TraceEvent::Action::free) CHECK(size == event.bytes);
      size = event.action == TraceEvent::Action::allocate ? event.bytes : 0;
    }
  }
}
