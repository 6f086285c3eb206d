// tests/support/barrier.hpp.
#include "tests/support/barrier.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace apportion::testing {

Barrier::Barrier(const std::string& file, unsigned parties) : parties_(parties) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0) {
    std::perror(file.c_str());
    std::abort();
  }
  void* page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (page == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(page);
}

Barrier::~Barrier() {
  ::munmap(shared_, sizeof(Shared));
}

bool Barrier::meet() {
  const std::uint32_t round = shared_->round.load();
  if (shared_->arrived.fetch_add(1) + 1 == parties_) {
    shared_->arrived.store(0);
    shared_->round.fetch_add(1);
    ::syscall(SYS_futex, &shared_->round, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
    return true;
  }
  for (int tries = 0; tries < 60; ++tries) {
    if (shared_->round.load() != round) return true;
    const timespec second{1, 0};
    ::syscall(SYS_futex, &shared_->round, FUTEX_WAIT, round, &second, nullptr, 0);
  }
  return shared_->round.load() != round;
}

}  // namespace apportion::testing
