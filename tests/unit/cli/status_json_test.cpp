#include "cli/status_json.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"
#include "tests/unit/cli/hand_made.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("status json: the whole answer, key for key") {
  CHECK(status_json(hand_made_answer()) ==
        R"({"broker":{"device":"GPU-0","device_name":"Some GPU","simulated":false,"version":"0.1.0",)"
        R"("socket":"/run/apportion/GPU-0/broker.sock","config":"/etc/apportion/apportion.toml",)"
        R"("closed":"","pid":101,"keeper_pid":100,"restarts":0,"uptime_ms":61999,)"
        R"("device_bytes":85899345920,"pool_bytes":68719476736,"chunk_bytes":33554432,)"
        R"("charged_bytes":21474836480,"in_transit_bytes":1073741824,"free_bytes":46170898432,)"
        R"("loose_bytes":3221225472,"overhead_bytes":16106127360,"helper_context_bytes":536870912,)"
        R"("foreign_bytes":2147483648},)"
        R"("jobs":[{"job":"trainer","priority":0,"guarantee_bytes":17179869184,)"
        R"("in_force_bytes":17179869184,"covered_bytes":8589934592,"limit_bytes":34359738368,)"
        R"("charged_bytes":21474836480,"used_bytes":13958643712,"idle_bytes":4294967296,)"
        R"("unspent_bytes":1073741824,"in_transit_bytes":2147483648,"told_total_bytes":17179869184,)"
        R"("told_free_bytes":0,"peak_charged_bytes":22548578304,"sessions":2,"grants":7,"refusals":1},)"
        R"({"job":"quiet","priority":0,"guarantee_bytes":0,"in_force_bytes":0,"covered_bytes":0,)"
        R"("limit_bytes":68719476736,"charged_bytes":0,"used_bytes":0,"idle_bytes":0,"unspent_bytes":0,)"
        R"("in_transit_bytes":0,"told_total_bytes":68719476736,"told_free_bytes":68719476736,)"
        R"("peak_charged_bytes":0,"sessions":0,"grants":0,"refusals":0}],)"
        R"("sessions":[{"session":1,"pid":201,"uid":4000000001,"job":"trainer","label":"python",)"
        R"("state":"attached","reclaimable":true,"told_bytes":17179869184,"charged_bytes":12884901888,)"
        R"("used_bytes":8589934592,"idle_bytes":4294967296,"unspent_bytes":0,"in_transit_bytes":0,)"
        R"("overhead_bytes":536870912,"leases":3,"report":{"bytes_in_use":0,"bytes_cached":0,)"
        R"("peak_bytes_in_use":0,"largest_free_block_bytes":0,"num_allocs":0,"num_frees":0,)"
        R"("fragmentation_ppm":0}},)"
        R"({"session":2,"pid":0,"uid":4000000001,"job":"trainer","label":"gone","state":"zombie",)"
        R"("reclaimable":false,"told_bytes":17179869184,"charged_bytes":8589934592,"used_bytes":0,)"
        R"("idle_bytes":0,"unspent_bytes":0,"in_transit_bytes":8589934592,"overhead_bytes":0,"leases":0,)"
        R"("report":{"bytes_in_use":0,"bytes_cached":0,"peak_bytes_in_use":0,"largest_free_block_bytes":0,)"
        R"("num_allocs":0,"num_frees":0,"fragmentation_ppm":0}}],)"
        R"("others":[{"kind":"context","pid":201,"uid":4000000002,"name":"python3","bytes":536870912},)"
        R"({"kind":"foreign","pid":301,"uid":4000000002,"name":"stranger","bytes":1073741824},)"
        R"({"kind":"foreign_rest","pid":0,"uid":4000000002,"name":"","bytes":1073741824}]})");
}

TEST_CASE("status json: one line, and sizes are exact integers of bytes") {
  StatusAnswer answer = hand_made_answer();
  answer.broker.totals.free = (1ULL << 63) + 1;  // a double would round it
  answer.broker.totals.loose = 0;
  const std::string text = status_json(answer);
  CHECK(text.find('\n') == std::string::npos);
  const nlohmann::json read = nlohmann::json::parse(text);
  CHECK(read["broker"]["free_bytes"].get<std::uint64_t>() == (1ULL << 63) + 1);
}

TEST_CASE("status json: a label that is not UTF-8 is replaced, and the line can still be read") {
  StatusAnswer answer = hand_made_answer();
  answer.sessions[0].session.label.set("caf\xe9");
  const nlohmann::json read = nlohmann::json::parse(status_json(answer));
  CHECK(read["sessions"][0]["label"] == "caf\xef\xbf\xbd");
}
