// How the demo's result is shown: a table and one line of conclusion, or one line of JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/demo.hpp"
#include "cli/table.hpp"
#include "shm/bytes.hpp"

namespace apportion {
namespace {

using Json = nlohmann::ordered_json;

std::string cell(const std::optional<std::uint64_t>& bytes) {
  return bytes ? gib(*bytes) : "-";
}

std::string table_of(const std::vector<Racer>& racers, bool leased) {
  Table table(leased ? std::vector<std::string>{"process", "job", ">guarantee", ">limit", ">told", ">wanted",
                                                ">got", "verdict"}
                     : std::vector<std::string>{"process", ">told", ">wanted", ">got", "verdict"});
  for (const Racer& racer : racers) {
    const std::string verdict = racer.ok     ? "ok"
                                : racer.told ? racer.got > 0 ? "too little" : "nothing"
                                             : "no context";
    if (leased) {
      table.row({std::to_string(racer.pid), racer.job, gib(racer.guarantee), gib(racer.limit),
                 cell(racer.told), cell(racer.wanted), gib(racer.got), verdict});
    } else {
      table.row({std::to_string(racer.pid), cell(racer.told), cell(racer.wanted), gib(racer.got), verdict});
    }
  }
  return table.text();
}

unsigned count_ok(const std::vector<Racer>& racers) {
  return static_cast<unsigned>(
      std::count_if(racers.begin(), racers.end(), [](const Racer& racer) { return racer.ok; }));
}

Json number_or_null(const std::optional<std::uint64_t>& bytes) {
  return bytes ? Json(*bytes) : Json();
}

Json racers_json(const std::vector<Racer>& racers, bool leased) {
  Json list = Json::array();
  for (const Racer& racer : racers) {
    Json entry = {{"pid", racer.pid},
                  {"told_bytes", number_or_null(racer.told)},
                  {"wanted_bytes", number_or_null(racer.wanted)},
                  {"got_bytes", racer.told ? Json(racer.got) : Json()},
                  {"ok", racer.ok}};
    if (leased) {
      entry["job"] = racer.job;
      entry["guarantee_bytes"] = racer.guarantee;
      entry["limit_bytes"] = racer.limit;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

std::string demo_text(const DemoResult& result) {
  const std::string of = " of " + std::to_string(result.broker.size());
  std::string out =
      "The race: programs that take memory the way JAX does (75 % of what they are told), all at one "
      "barrier, on a " +
      std::string(result.simulated ? "simulated " : "") + "device of " + to_text(Bytes{result.device_bytes}) +
      ". Sizes in GiB.\n\n";
  out += "On the bare device:\n" + table_of(result.bare, false) + "\n";
  out += "Through the broker, which shares a pool of " + to_text(Bytes{result.pool_bytes}) + ":\n" +
         table_of(result.broker, true) + "\n";
  out += "Bare, " + std::to_string(count_ok(result.bare)) + of +
         " got what they wanted; through the broker, " + std::to_string(count_ok(result.broker)) + of +
         ", with " + std::to_string(result.distinct_results) +
         (result.distinct_results == 1 ? " result" : " different results") + " in " +
         std::to_string(result.orders) + (result.orders == 1 ? " order" : " orders");
  if (result.overlap_bytes)
    out += " and " + to_text(Bytes{*result.overlap_bytes}) + " mapped by two programs at once";
  return out + ".\n";
}

std::string demo_json(const DemoResult& result) {
  const Json out = {{"bare", racers_json(result.bare, false)},
                    {"broker", racers_json(result.broker, true)},
                    {"device_bytes", result.device_bytes},
                    {"pool_bytes", result.pool_bytes},
                    {"orders", result.orders},
                    {"distinct_results", result.distinct_results},
                    {"overlap_bytes", number_or_null(result.overlap_bytes)}};
  return out.dump();
}

}  // namespace apportion
