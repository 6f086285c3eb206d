// cudasim-ctl: looks at a device folder and changes it while programs run.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "cudasim/control.hpp"

namespace {

constexpr const char* kUsage =
    "usage: cudasim-ctl VERB ...            the device folder is CUDASIM_DIR, else /dev/shm/cudasim-<uid>\n"
    "  census                               processes, allocations, used bytes; one line of JSON\n"
    "  fault FUNCTION CODE [FIRST [COUNT]]  FUNCTION fails with CODE from its FIRSTth call on, COUNT times\n"
    "  clear                                no faults, no delays\n"
    "  calls FUNCTION                       calls so far, over all processes\n"
    "  log                                  the driver calls that the ring still has\n"
    "  lost DEVICE 0|1                      lose a device, bring it back\n"
    "  stranger DEVICE SIZE                 memory taken by somebody else, like 4GiB\n"
    "example: cudasim-ctl fault cuMemCreate 2 3 1\n";

int usage() {
  std::fputs(kUsage, stderr);
  return 2;
}

// A whole number and nothing else.
template <typename Number>
bool read_number(const char* text, Number& number) {
  const char* end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, number);
  return error == std::errc() && stop == end && stop != text;
}

int print_log(const cudasim::Control& control) {
  for (const auto& record : control.records(0))
    std::printf("%llu pid=%d tid=%d %s(%#llx, %#llx) = %d %s\n",
                static_cast<unsigned long long>(record.time_ns), record.pid, record.tid,
                record.function.c_str(), static_cast<unsigned long long>(record.a),
                static_cast<unsigned long long>(record.b), record.result, record.text.c_str());
  return 0;
}

int set_fault(cudasim::Control& control, int count, char** arguments) {
  cudasim::Fault fault;
  fault.count = cudasim::Fault::kForEver;
  if (!read_number(arguments[3], fault.code) || fault.code <= 0) return usage();
  if (count > 4 && (!read_number(arguments[4], fault.first) || fault.first == 0)) return usage();
  if (count > 5 && (!read_number(arguments[5], fault.count) || fault.count == 0)) return usage();
  control.set_fault(arguments[2], fault);
  return 0;
}

int run(cudasim::Control& control, int count, char** arguments) {
  const std::string verb = arguments[1];
  cudasim::u32 device = 0;
  const bool of_device = (verb == "lost" || verb == "stranger") && count == 4;
  if (of_device && (!read_number(arguments[2], device) || device >= control.folder().page().device_count)) {
    std::fprintf(stderr, "cudasim-ctl: there is no device %s; this folder has %u, from 0\n", arguments[2],
                 control.folder().page().device_count);
    return 1;
  }
  if (verb == "census" && count == 2) return std::puts(to_json(control.census()).c_str()) < 0;
  if (verb == "log" && count == 2) return print_log(control);
  if (verb == "fault" && count >= 4 && count <= 6) return set_fault(control, count, arguments);
  if (verb == "calls" && count == 3)
    return std::printf("%llu\n", static_cast<unsigned long long>(control.calls(arguments[2]))) < 0;
  if (verb == "clear" && count == 2) return control.clear_faults(), 0;
  const bool zero_or_one = of_device && (!std::strcmp(arguments[3], "0") || !std::strcmp(arguments[3], "1"));
  if (verb == "lost" && zero_or_one) return control.set_lost(device, *arguments[3] == '1'), 0;
  if (verb == "stranger" && of_device) {
    auto bytes = cudasim::parse_size(arguments[3]);
    if (bytes) return control.set_stranger_bytes(device, *bytes), 0;
  }
  return usage();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return usage();
  if (!std::strcmp(arguments[1], "--help")) return std::fputs(kUsage, stdout) < 0;
  std::string error;
  auto options = cudasim::FolderOptions::from_environment(error);
  auto control = options ? cudasim::Control::open(cudasim::default_folder(), *options, error) : nullptr;
  if (control) return run(*control, count, arguments);
  std::fprintf(stderr, "%s\n", error.c_str());
  return 1;
}
