// The simulated driver's place and environment: gpu/simulator.hpp.
#include "gpu/simulator.hpp"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

namespace apportion {
namespace {

constexpr const char* kInBuild = "/cudasim/libcuda.so.1";
constexpr const char* kInstalled = "/../lib/apportion/cudasim/libcuda.so.1";
constexpr int kBuildDepth = 4;  // build/dev/tests/unit/gpu/program is the deepest

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::string parent(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A device folder that is not there yet is made on a tmpfs only, and no other folder with it: a path with a
// mistake in it must not become a device of its own.
Status check_place(const std::string& folder, const std::string& existing) {
  constexpr const char* kRemedy = "; make it, or set CUDASIM_DIR to a folder below /dev/shm";
  if (existing == folder) return Done{};
  if (existing != parent(folder))
    return Error{Errc::invalid,
                 "there is no folder " + parent(folder) + " for the simulated device's " + folder + kRemedy};
  struct statfs file_system {};
  if (::statfs(existing.c_str(), &file_system) != 0)
    return system_error("cannot read the kind of the file system of " + existing, errno);
  if (file_system.f_type == TMPFS_MAGIC) return Done{};
  return Error{Errc::invalid, "the simulated device's folder " + folder + " does not exist, and " + existing +
                                  " is no tmpfs" + kRemedy};
}

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  return length <= 0 ? "/" : parent(std::string(path, static_cast<std::size_t>(length)));
}

}  // namespace

Result<std::string> find_simulator() {
  std::vector<std::string> places;
  if (const char* named = variable("APPORTION_DRIVER")) {
    places.emplace_back(named);
  } else {
    const std::string own = own_folder();
    std::string folder = own;
    for (int depth = 0; depth < kBuildDepth && folder != "/"; ++depth, folder = parent(folder))
      places.push_back(folder + kInBuild);
    places.push_back(own + kInstalled);
  }
  std::string tried;
  for (const std::string& place : places) {
    if (::access(place.c_str(), R_OK) == 0) return place;
    tried += (tried.empty() ? "" : ", ") + place;
  }
  return Error{Errc::not_found,
               "no simulated driver found; tried " + tried +
                   "; build the target 'cudasim', or set APPORTION_DRIVER to its libcuda.so.1"};
}

std::string simulator_folder() {
  if (const char* folder = variable("CUDASIM_DIR")) return folder;
  return "/dev/shm/cudasim-" + std::to_string(::getuid());
}

void leave_no_simulator() {
  ::setenv("CUDASIM_TEMPORARY", "1", 1);
}

Bytes simulator_room(Bytes total) {
  return 16_MiB + Bytes{total.value / 2048};
}

Result<std::string> prepare_simulator(Bytes total) {
  auto driver = find_simulator();
  if (!driver) return driver.error();
  const std::string size = std::to_string(total / 1_MiB) + "MiB";
  const std::string folder =
      variable("CUDASIM_DIR") != nullptr ? simulator_folder() : simulator_folder() + "-" + size;
  // The folder may not exist yet: its file system is that of the nearest ancestor that does.
  std::string existing = folder;
  struct statvfs space {};
  while (::statvfs(existing.c_str(), &space) != 0) {
    if (errno != ENOENT || existing == "/")
      return system_error("cannot read the free space of " + existing, errno);
    existing = parent(existing);
  }
  const Bytes free{static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize};
  if (free < simulator_room(total))
    return Error{Errc::out_of_memory,
                 "the simulated device needs " + to_text(simulator_room(total)) + " in " + existing +
                     ", which has " + to_text(free) +
                     " free; make it larger (in a container: --shm-size=1g), or set CUDASIM_DIR "
                     "to a folder on a larger tmpfs"};
  if (Status place = check_place(folder, existing); !place) return place.error();
  if (::setenv("CUDASIM_DIR", folder.c_str(), 1) != 0 || ::setenv("CUDASIM_DEVICES", size.c_str(), 0) != 0 ||
      ::setenv("CUDASIM_FORCE", "1", 1) != 0)
    return system_error("cannot set the simulator's environment", errno);
  return driver;
}

}  // namespace apportion
