#include "broker/process_label.hpp"

#include <sys/stat.h>

#include <fstream>

namespace apportion {

ProcessLabel label_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  ProcessLabel label;
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0) label.uid = status.st_uid;
  std::ifstream comm(folder + "/comm");
  std::getline(comm, label.name);
  return label;
}

}  // namespace apportion
