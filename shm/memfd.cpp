#include "shm/memfd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#ifndef MFD_NOEXEC_SEAL  // Linux 6.3
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE  // Linux 5.1
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace apportion {

namespace {

Status seal(const Fd& memfd, int seals) {
  if (::fcntl(memfd.get(), F_ADD_SEALS, seals) != 0) return system_error("cannot seal a shared page", errno);
  return Done{};
}

}  // namespace

Result<Fd> make_memfd(const std::string& name, Bytes size) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd = Fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_error("cannot make shared memory \"" + name + "\"", errno);
  // F22: another uid that receives a read-only view cannot reopen it through /proc with more rights.
  if (::fchmod(fd.get(), 0600) != 0) return system_error("cannot set the mode of \"" + name + "\"", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(size.value)) != 0) {
    return system_error("cannot size shared memory \"" + name + "\" to " + to_text(size), errno);
  }
  return fd;
}

Status seal_read_only(const Fd& memfd) {
  return seal(memfd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

Status seal_size(const Fd& memfd) {
  return seal(memfd, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

Status require_sealed_size(int memfd) {
  const int seals = ::fcntl(memfd, F_GET_SEALS);
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals < 0 || (seals & kSize) != kSize) {
    return Error{Errc::protocol, "the other side sent a shared page that can still change its size; refused"};
  }
  return Done{};
}

Result<Bytes> size_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error("cannot read the size of a shared page", errno);
  return Bytes{static_cast<std::uint64_t>(status.st_size)};
}

}  // namespace apportion
