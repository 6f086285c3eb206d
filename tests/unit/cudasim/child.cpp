#include "tests/unit/cudasim/child.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace cudasim::testing {
namespace {

int* socket_pair() {
  static thread_local int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  return ends;
}

void prepare(const std::string& device_folder, const Child::Options& options) {
  ::setenv("CUDASIM_DIR", device_folder.c_str(), 1);
  ::setenv("CUDASIM_FORCE", "1", 1);
  for (const auto& [name, value] : options.environment) {
    if (value.empty())
      ::unsetenv(name.c_str());
    else
      ::setenv(name.c_str(), value.c_str(), 1);
  }
  if (options.error_output >= 0) ::dup2(options.error_output, 2);
  if (options.file_limit) {
    const rlimit limit{static_cast<rlim_t>(options.file_limit), static_cast<rlim_t>(options.file_limit)};
    MUST(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  if (options.uid >= 0) MUST(::setresuid(options.uid, options.uid, options.uid) == 0);
}

}  // namespace

void must(bool good, const char* what, int line) {
  if (good) return;
  std::fprintf(stderr, "child %d, line %d: %s does not hold\n", ::getpid(), line, what);
  ::_exit(99);
}

void Link::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Link::send(u64 word, int fd) {
  iovec bytes{&word, sizeof word};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  MUST(::sendmsg(fd_, &message, MSG_NOSIGNAL) == sizeof word);
}

u64 Link::receive(int* fd) {
  u64 word = ~u64{0};
  iovec bytes{&word, sizeof word};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  ssize_t got;
  do
    got = ::recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (fd) *fd = -1;
  if (got != sizeof word) return ~u64{0};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header && fd; header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_type == SCM_RIGHTS) std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return word;
}

Driver::Driver() : library(::dlopen(CUDASIM_LIBCUDA, RTLD_NOW | RTLD_LOCAL)) {
  MUST(library != nullptr);
}

void* Driver::look_up(const char* symbol) const {
  void* found = ::dlsym(library, symbol);
  must(found != nullptr, symbol, 0);
  return found;
}

Child::Child(const std::string& device_folder, std::function<void(Driver&, Link&)> body,
             const Options& options)
    : Child(socket_pair(), device_folder, body, options) {}

Child::Child(const std::string& device_folder, std::function<void(Driver&, Link&)> body)
    : Child(device_folder, std::move(body), Options{}) {}

Child::Child(int ends[2], const std::string& device_folder, std::function<void(Driver&, Link&)>& body,
             const Options& options)
    : link_(ends[0]) {
  pid_ = ::fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    // A reporter that collects what is written has lent std::cout a buffer on its stack; exit() would flush
    // into it.
    for (std::ostream* stream : {&std::cout, &std::cerr, &std::clog})
      stream->rdbuf(nullptr);
    link_.close();
    Link own(ends[1]);
    prepare(device_folder, options);
    Driver driver;
    body(driver, own);
    std::exit(0);
  }
  ::close(ends[1]);
}

Child::~Child() {
  if (pid_) kill();
}

void Child::kill() {
  if (!pid_) return;
  ::kill(pid_, SIGKILL);
  wait();
}

int Child::wait() {
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
}

CUmemGenericAllocationHandle create_chunk(Driver& driver, u64 bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
  MUST(SYM(driver, cuMemCreate)(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
  return handle;
}

CUdeviceptr map_chunk(Driver& driver, CUmemGenericAllocationHandle handle, u64 bytes) {
  CUdeviceptr address = 0;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  MUST(SYM(driver, cuMemAddressReserve)(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
  MUST(SYM(driver, cuMemMap)(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
  MUST(SYM(driver, cuMemSetAccess)(address, bytes, &access, 1) == CUDA_SUCCESS);
  return address;
}

int export_chunk(Driver& driver, CUmemGenericAllocationHandle handle) {
  int fd = -1;
  MUST(SYM(driver, cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
       CUDA_SUCCESS);
  return fd;
}

CUmemGenericAllocationHandle import_chunk(Driver& driver, int fd) {
  CUmemGenericAllocationHandle handle = 0;
  MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
  MUST(SYM(driver, cuMemImportFromShareableHandle)(&handle,
                                                   reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
  return handle;
}

void use_primary_context(Driver& driver) {
  CUcontext context = nullptr;
  MUST(SYM(driver, cuInit)(0) == CUDA_SUCCESS);
  MUST(SYM(driver, cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
  MUST(SYM(driver, cuCtxSetCurrent)(context) == CUDA_SUCCESS);
}

void put_word(Driver& driver, CUdeviceptr address, u64 word) {
  MUST(SYM(driver, cuMemcpyHtoD)(address, &word, sizeof word) == CUDA_SUCCESS);
  MUST(SYM(driver, cuCtxSynchronize)() == CUDA_SUCCESS);
}

u64 get_word(Driver& driver, CUdeviceptr address) {
  u64 word = 0;
  MUST(SYM(driver, cuMemcpyDtoH)(&word, address, sizeof word) == CUDA_SUCCESS);
  return word;
}

}  // namespace cudasim::testing
