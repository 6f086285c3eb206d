#include "shm/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace apportion {

void fill_closed_streams() {
  // In this order, since open() takes the lowest number that is free. Not close-on-exec: children inherit
  // them.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
      return;  // no /dev/null: nothing to do
  }
}

}  // namespace apportion
