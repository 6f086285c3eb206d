// apportion: the command line. Each verb is a function of its own file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "cli/check.hpp"
#include "cli/demo.hpp"
#include "cli/planned.hpp"
#include "cli/status_json.hpp"
#include "cli/status_query.hpp"
#include "cli/status_text.hpp"
#include "config/nearest.hpp"
#include "shm/quote.hpp"
#include "shm/standard_streams.hpp"

namespace {

using namespace apportion;

constexpr int kFailed = 1;
constexpr int kWrongUse = 2;

int fail(const Error& error) {
  std::fprintf(stderr, "apportion: %s\n", error.message.c_str());
  return kFailed;
}

int print(const std::string& text) {
  const bool whole = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return whole ? 0 : fail({Errc::system, "cannot write to standard output"});
}

int status(const std::string& device, bool json) {
  Result<StatusAnswer> answer = ask_status(device);
  if (!answer.ok()) return fail(answer.error());
  return print(json ? status_json(*answer) + "\n" : status_text(*answer));
}

int check(const CheckOptions& options) {
  Result<CheckAnswer> answer = check_config(options);
  if (!answer.ok()) return fail(answer.error());
  int code = print(answer->text);
  for (const std::string& refusal : answer->refusals)
    code = fail({Errc::invalid, refusal});
  return code;
}

int demo(const DemoOptions& options) {
  Result<DemoResult> result = run_demo(options);
  if (!result.ok()) return fail(result.error());
  return print(options.json ? demo_json(*result) + "\n" : demo_text(*result));
}

// The line for a first word that is missing or no verb; empty where it is one, or an option.
std::string unknown_verb(const CLI::App& app, const std::string& word) {
  if (!word.empty() && word.front() == '-') return {};
  std::vector<std::string> verbs;
  std::string list;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == word) return {};
    verbs.push_back(verb->get_name());
    list += (list.empty() ? "" : ", ") + verbs.back();
  }
  if (word.empty()) return "what to do? verbs: " + list + "; see: apportion --help";
  const std::string meant = nearest(word, verbs);
  return "there is no verb " + in_quotes(word) + (meant.empty() ? "" : ", perhaps " + in_quotes(meant)) +
         "; verbs: " + list;
}

// The text of --help and --version, or one line on what is wrong with the command line.
int end_of_parse(const CLI::App& app, const CLI::ParseError& end) {
  std::ostringstream out;
  std::ostringstream ignored;
  if (app.exit(end, out, ignored) == 0) return print(out.str());
  std::fprintf(stderr, "apportion: %s; see: apportion --help\n", end.what());
  return kWrongUse;
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_streams();
  CLI::App app{"apportion: shares the memory of one GPU between jobs. The broker is apportiond.",
               "apportion"};
  app.set_version_flag("--version", std::string(APPORTION_VERSION));
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  apportion status\n  apportion check apportion.toml\n  apportion demo --orders all\n\n"
      "Exit status: 0 done, 1 failed (one line on standard error says why), 2 wrong command line.");

  std::string device;
  bool json = false;
  CLI::App* status_verb =
      app.add_subcommand("status", "who has the device's memory: the pool, each job, each process");
  status_verb->add_option("--device", device,
                          "UUID of the device, or how it begins, where several brokers run");
  status_verb->add_flag("--json", json, "one line of JSON, sizes in bytes");
  status_verb->footer(
      "Examples:\n  apportion status\n  apportion status --json | python3 -m json.tool\n"
      "  apportion status --device GPU-89ab\n"
      "The broker is looked for at $APPORTION_SOCKET, else at $XDG_RUNTIME_DIR/apportion/*/broker.sock and "
      "/run/apportion/*/broker.sock.");

  CheckOptions checking;
  CLI::App* check_verb =
      app.add_subcommand("check", "what each job of a config would get on this device, or why it is refused");
  check_verb->add_option("FILE", checking.file, "the config; without it the usual places");
  check_verb->add_option("--device", checking.device,
                         "another device than the file's: index, UUID, PCI id, sim:SIZE");
  check_verb->footer(
      "Examples:\n  apportion check apportion.toml\n  apportion check --device sim:24GiB apportion.toml");

  DemoOptions racing;
  std::string orders = "one";
  CLI::App* demo_verb =
      app.add_subcommand("demo", "four programs race for one GPU: bare, then through a broker");
  demo_verb
      ->add_option("--orders", orders,
                   "one (all start at a barrier), or all start orders, one after the other")
      ->check(CLI::IsMember({"one", "all"}));
  demo_verb->add_flag("--json", racing.json, "one line of JSON, sizes in bytes");
  demo_verb->add_option("--clients", racing.clients, "how many programs");
  demo_verb->add_option("--device", racing.device, "sim:SIZE, or a real one: index or UUID");
  demo_verb->add_option("--seed", racing.seed, "of the order in which the barrier lets go");
  demo_verb->add_option("--break", racing.break_name)->group("");
  demo_verb->footer(
      "Verdicts: ok, it got all it wanted; too little, a part; nothing, not even its first request; no "
      "context, the\ndevice had no room left for the process's own context, so it was told nothing.\n"
      "Examples:\n  apportion demo\n  apportion demo --orders all --json\n  apportion demo --clients 8 "
      "--device sim:24GiB");

  const std::string word = argc > 1 ? argv[1] : "";
  if (const std::string later = planned_verb(word); !later.empty()) return fail({Errc::not_found, later});
  const std::string unknown = unknown_verb(app, word);
  if (!unknown.empty()) {
    std::fprintf(stderr, "apportion: %s\n", unknown.c_str());
    return kWrongUse;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return end_of_parse(app, end);
  }
  racing.all_orders = orders == "all";
  if (*status_verb) return status(device, json);
  if (*check_verb) return check(checking);
  return demo(racing);
}
