// docs/config.md against the parser's own table, both ways.
#include <algorithm>
#include <map>
#include <sstream>

#include "config/keys.hpp"
#include "tests/unit/config/support.hpp"

using namespace apportion;
using namespace apportion::testing;

namespace {

struct DocumentedKey {
  std::string table;
  std::string default_text;
  std::string acts;
};

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// The rows of the table "| key | where | values | default | acts |".
std::map<std::string, DocumentedKey> documented_keys() {
  std::istringstream page{file_text(source_path("docs/config.md"))};
  std::map<std::string, DocumentedKey> keys;
  std::string line;
  bool in_table = false;
  while (std::getline(page, line)) {
    if (line == "| key | where | values | default | acts |") in_table = true;
    if (line.empty()) in_table = false;
    if (!in_table || line.rfind("| `", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream row{line.substr(1)};
    for (std::string cell; std::getline(row, cell, '|');)
      cells.push_back(trimmed(cell));
    INFO(line);
    REQUIRE(cells.size() == 5);
    const std::string name = cells[0].substr(1, cells[0].size() - 2);
    REQUIRE(keys.count(name) == 0);
    keys[name] = {cells[1] == "job" ? "jobs" : cells[1], cells[3], cells[4]};
  }
  return keys;
}

}  // namespace

TEST_CASE("docs/config.md lists every key of the parser, where it stands and its default, and no other key") {
  const std::map<std::string, DocumentedKey> documented = documented_keys();
  const std::vector<KeyInfo> keys = config_keys();
  for (const KeyInfo& key : keys) {
    INFO(key.table << "." << key.name);
    const auto row = documented.find(key.name);
    REQUIRE(row != documented.end());
    CHECK(row->second.table == key.table);
    if (key.default_text != "-") CHECK(row->second.default_text.rfind("`" + key.default_text + "`", 0) == 0);
    const std::string& acts = row->second.acts;
    CHECK((acts == "now" || acts.rfind("later: ", 0) == 0));
  }
  for (const auto& [name, row] : documented) {
    INFO(name);
    CHECK(std::any_of(keys.begin(), keys.end(),
                      [&wanted = name](const KeyInfo& key) { return key.name == wanted; }));
  }
  CHECK(documented.size() == keys.size());
}

TEST_CASE("the parser knows exactly the keys that the design names") {
  std::vector<std::string> names;
  for (const KeyInfo& key : config_keys())
    names.push_back(key.table + "." + key.name);
  CHECK(names == std::vector<std::string>{"broker.device",
                                          "broker.pool",
                                          "broker.chunk",
                                          "broker.reserve",
                                          "broker.overhead",
                                          "broker.reclaim_deadline",
                                          "broker.reattach_window",
                                          "broker.idle_return",
                                          "broker.sessions_per_uid",
                                          "broker.requests_per_second",
                                          "broker.fail_open",
                                          "jobs.share",
                                          "jobs.guarantee",
                                          "jobs.limit",
                                          "jobs.priority",
                                          "jobs.hold",
                                          "jobs.lend",
                                          "jobs.report",
                                          "jobs.overdue",
                                          "jobs.library_room",
                                          "jobs.wait",
                                          "jobs.scrub",
                                          "jobs.return",
                                          "jobs.transport",
                                          "jobs.serve",
                                          "jobs.users",
                                          "adhoc.max_guarantee",
                                          "adhoc.max_per_user"});
}

TEST_CASE("the example in docs/config.md loads") {
  const std::string page = file_text(source_path("docs/config.md"));
  const std::size_t begin = page.find("```toml\n") + 8;
  const Config config = parsed(page.substr(begin, page.find("```", begin) - begin));
  CHECK(load(config, device_of(80_GiB)).ok());
}

TEST_CASE("the figures of docs/quotas.md are what load() gives") {
  const Config config = parsed(
      "[broker]\npool=\"5GiB\"\n[jobs.a]\nshare=\"1/"
      "3\"\n[jobs.b]\nguarantee=\"1000MB\"\n[jobs.c]\nlimit=\"100GiB\"\n");
  const LoadReport report = load(config, device_of(8_GiB));
  REQUIRE(report.ok());
  CHECK(report.pool_chunks == 160);
  CHECK(to_text(report.overhead) == "2.5 GiB");
  CHECK(report.jobs[0].guarantee_chunks == 53);
  CHECK(to_text(report.jobs[0].guarantee) == "1.66 GiB");
  CHECK(report.jobs[1].guarantee_chunks == 30);
  CHECK(to_text(report.jobs[1].guarantee) == "960 MiB");
  CHECK(to_text(report.jobs[2].limit) == "5 GiB");
  CHECK(report.warnings.size() == 1);
  Config more = config;
  more.jobs.push_back(parsed("[jobs.d]\nshare=\"0.6\"\n").jobs[0]);
  CHECK_FALSE(load(more, device_of(8_GiB)).ok());
}
