// apportiond: the command line. Starts the keeper, which starts the broker; or tells what a device can do.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "broker/helper.hpp"
#include "broker/keeper.hpp"
#include "broker/start.hpp"
#include "gpu/probe_text.hpp"
#include "gpu/simulator.hpp"
#include "shm/standard_streams.hpp"

namespace {

constexpr const char* kExamples = R"(Examples:
  apportiond --config apportion.toml          serve the device that the file names
  apportiond --probe                          what works on device 0, tried once each
  apportiond --probe --device sim:8GiB        the same on a simulated device
  APPORTION_LOG=warning apportiond            log warnings and errors only

Without --config: $APPORTION_CONFIG, $XDG_CONFIG_HOME/apportion/apportion.toml, /etc/apportion/apportion.toml.
It stays in the foreground and stops on SIGTERM or SIGINT; programs that hold memory keep it until they end.)";

constexpr int kWrongUse = 2;

// The text of --help and --version, or one line on what is wrong with the command line.
int end_of_parse(const CLI::App& app, const CLI::ParseError& end) {
  std::ostringstream ignored;
  if (app.exit(end, std::cout, ignored) == 0) return 0;
  std::fprintf(stderr, "apportiond: %s; see: apportiond --help\n", end.what());
  return kWrongUse;
}

int probe(const std::string& device_name, bool json) {
  apportion::leave_no_simulator();
  apportion::Result<apportion::Device> device = apportion::Device::open(device_name);
  if (!device.ok()) {
    std::fprintf(stderr, "apportiond: %s\n", device.error().message.c_str());
    return 1;
  }
  const apportion::ProbeReport report = apportion::probe(*device);
  std::printf("%s", (json ? apportion::to_json(report) + "\n" : apportion::to_table(report)).c_str());
  if (report.usable()) return 0;
  std::fprintf(stderr, "apportiond: this device cannot be shared: %s\n", report.why_not().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  apportion::fill_closed_streams();
  CLI::App app{"apportiond: the broker that shares the memory of one GPU between jobs."};
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(APPORTION_VERSION));
  apportion::BrokerOptions options;
  bool wants_probe = false;
  bool json = false;
  std::string device = "0";
  int channel = -1;
  app.add_option("--config", options.config, "the config file")->type_name("FILE");
  CLI::Option* probing =
      app.add_flag("--probe", wants_probe, "try what works on a device, print the table, and exit");
  app.add_option("--device", device, "for --probe: index, UUID, PCI id, or sim:SIZE")->needs(probing);
  app.add_flag("--json", json, "for --probe: one line of JSON")->needs(probing);
  app.add_option(apportion::kBrokerFlag, channel)->group("");
  app.add_option(apportion::kRestartsFlag, options.restarts)->group("");
  int helper_channel = -1;
  std::string helper_device;
  app.add_option(apportion::kHelperFlag, helper_channel)->group("");
  app.add_option(apportion::kHelperDeviceFlag, helper_device)->group("");
  int helper_broker = 0;
  app.add_option(apportion::kHelperBrokerFlag, helper_broker)->group("");
  // For tests: how long a helper may be silent.
  app.add_option("--helper-patience-ms", options.helper_patience_ms)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return end_of_parse(app, end);
  }
  if (wants_probe) return probe(device, json);
  if (helper_channel >= 0)
    return apportion::run_helper(apportion::Fd(helper_channel), helper_device, helper_broker);
  if (channel < 0) return apportion::run_keeper({argv, argv + argc});
  options.keeper_channel = apportion::Fd(channel);
  return apportion::run_broker(std::move(options));
}
