// Starting, asking and ending helper processes: tests/conformance/peer.hpp.
#include "peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"
#include "tests/support/catch.hpp"

extern char** environ;

namespace apportion::conformance {
namespace {

constexpr int kCallDeadlineMs = 60'000;
constexpr int kExitDeadlineMs = 10'000;

// The program APPORTION_PEER names, else the one beside this program, else the one in the build's
// conformance/.
std::string peer_program() {
  if (const char* named = std::getenv("APPORTION_PEER")) return named;
  const std::string beside = program_folder() + "/conformance_peer";
  return ::access(beside.c_str(), X_OK) == 0 ? beside : program_folder() + "/../conformance/conformance_peer";
}

std::vector<std::string> peer_environment(const PeerOptions& options) {
  std::vector<std::string> all = options.environment;
  all.push_back("APPORTION_DRIVER=" + driver_path());
  if (options.new_pid_namespace) all.push_back("PEER_NEW_PID_NAMESPACE=1");
  if (options.uid != 0) all.push_back("PEER_UID=" + std::to_string(options.uid));
  const auto overridden = [&](const char* entry) {
    const std::size_t name = std::strcspn(entry, "=") + 1;
    for (const std::string& own : all)
      if (own.compare(0, name, entry, name) == 0) return true;
    return false;
  };
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!overridden(*entry)) inherited.emplace_back(*entry);
  all.insert(all.end(), inherited.begin(), inherited.end());
  return all;
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void OwnedFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Peer::Peer(const Options& options) {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  socket_ = OwnedFd(ends[0]);
  const OwnedFd theirs(ends[1]);

  // posix_spawn shares the address space until exec: no page of this process, and so no reference to device
  // memory that the simulator keeps as a mapping, is copied into a child (rules 9 and 37).
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kPeerSocket);
  const std::string program = peer_program();
  char* arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  const std::vector<std::string> environment = peer_environment(options);
  std::vector<char*> pointers;
  pointers.reserve(environment.size() + 1);
  for (const std::string& entry : environment)
    pointers.push_back(const_cast<char*>(entry.c_str()));
  pointers.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  INFO("starting " << program << ": " << std::strerror(error));
  if (error != 0) pid_ = -1;
  REQUIRE(error == 0);

  Reply hello;
  OwnedFd none;
  pollfd waiting{socket_.get(), POLLIN, 0};
  REQUIRE(::poll(&waiting, 1, kCallDeadlineMs) == 1);
  REQUIRE(::recv(socket_.get(), &hello, sizeof hello, 0) == static_cast<ssize_t>(sizeof hello));
  usable_ = hello.code == 0;
}

Peer::Peer(Peer&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)), usable_(other.usable_) {}

Peer::~Peer() {
  if (pid_ < 0) return;
  socket_.reset();  // the helper ends when its socket does
  for (int waited_ms = 0; waited_ms < kExitDeadlineMs; ++waited_ms) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    ::poll(nullptr, 0, 1);
  }
  kill();
}

void Peer::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  socket_.reset();
}

int Peer::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

Answer Peer::exchange(const Request& request, int send_fd, Reply* reply, OwnedFd* received) {
  iovec body{const_cast<Request*>(&request), sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (send_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &send_fd, sizeof send_fd);
  }
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) return kDied;

  pollfd waiting{socket_.get(), POLLIN, 0};
  INFO("call " << static_cast<unsigned>(request.op) << " of process " << pid_ << " did not return in time");
  REQUIRE(::poll(&waiting, 1, kCallDeadlineMs) == 1);
  body = {reply, sizeof *reply};
  message = {};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (length != static_cast<ssize_t>(sizeof *reply)) return kDied;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    OwnedFd owned(fd);
    if (received != nullptr) *received = std::move(owned);
  }
  return Answer{static_cast<CUresult>(reply->code)};
}

Answer Peer::call(Op op, std::vector<std::uint64_t> arguments, Reply* reply) {
  Request request;
  request.op = op;
  for (std::size_t i = 0; i < arguments.size() && i < 4; ++i)
    request.argument[i] = arguments[i];
  Reply own;
  return exchange(request, -1, reply != nullptr ? reply : &own, nullptr);
}

namespace {
Answer take(Answer answer, const Reply& reply, std::uint64_t* value) {
  if (answer.ok()) *value = reply.value[0];
  return answer;
}
}  // namespace

Answer Peer::create(std::size_t bytes, std::uint64_t* handle) {
  Reply reply;
  return take(call(Op::create, {bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0}, &reply), reply, handle);
}

Answer Peer::reserve(std::size_t bytes, std::uint64_t* address) {
  Reply reply;
  return take(call(Op::reserve, {bytes}, &reply), reply, address);
}

Answer Peer::export_fd(std::uint64_t handle, OwnedFd* fd) {
  Request request;
  request.op = Op::export_fd;
  request.argument[0] = handle;
  Reply reply;
  return exchange(request, -1, &reply, fd);
}

Answer Peer::import_fd(const OwnedFd& fd, std::uint64_t* handle, std::uint64_t* number) {
  Request request;
  request.op = Op::import_fd;
  request.argument[0] = number != nullptr ? 1 : 0;
  Reply reply;
  const Answer answer = take(exchange(request, fd.get(), &reply, nullptr), reply, handle);
  if (number != nullptr) *number = reply.value[1];
  return answer;
}

Answer Peer::import_number(int number, std::uint64_t* handle) {
  Reply reply;
  return take(call(Op::import_number, {static_cast<std::uint64_t>(number)}, &reply), reply, handle);
}

Answer Peer::retain(std::uint64_t address, std::uint64_t* handle) {
  Reply reply;
  return take(call(Op::retain, {address}, &reply), reply, handle);
}

Answer Peer::mem_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  Reply reply;
  const Answer answer = call(Op::mem_info, {}, &reply);
  if (!answer.ok()) return answer;
  *free_bytes = reply.value[0];
  if (total_bytes != nullptr) *total_bytes = reply.value[1];
  return answer;
}

Answer Peer::mem_alloc(std::size_t bytes, std::uint64_t* address) {
  Reply reply;
  return take(call(Op::mem_alloc, {bytes}, &reply), reply, address);
}

Answer Peer::alloc_managed(std::size_t bytes, std::uint64_t* address) {
  Reply reply;
  return take(call(Op::alloc_managed, {bytes}, &reply), reply, address);
}

Answer Peer::read_word(std::uint64_t address, std::uint64_t* value) {
  Reply reply;
  return take(call(Op::read_word, {address}, &reply), reply, value);
}

Answer Peer::ipc_get(std::uint64_t address, std::string* blob) {
  Reply reply;
  const Answer answer = call(Op::ipc_get, {address}, &reply);
  if (answer.ok()) blob->assign(reply.blob, sizeof reply.blob);
  return answer;
}

Answer Peer::ipc_open(const std::string& blob, std::uint64_t* address, unsigned flags) {
  Request request;
  request.op = Op::ipc_open;
  request.argument[0] = flags;
  REQUIRE(blob.size() == sizeof request.blob);
  std::memcpy(request.blob, blob.data(), sizeof request.blob);
  Reply reply;
  return take(exchange(request, -1, &reply, nullptr), reply, address);
}

Answer Peer::nvml_used(std::size_t* bytes) {
  Reply reply;
  const Answer answer = call(Op::nvml_used, {}, &reply);
  if (answer.ok()) *bytes = reply.value[0];
  return answer;
}

Answer Peer::nvml_process(pid_t pid, std::size_t* bytes) {
  Reply reply;
  const Answer answer = call(Op::nvml_process, {static_cast<std::uint64_t>(pid)}, &reply);
  if (answer.ok()) *bytes = reply.value[0];
  return answer;
}

void Peer::start_churn(std::uint64_t seed, std::size_t bytes) {
  Request request;
  request.op = Op::churn;
  request.argument[0] = seed;
  request.argument[1] = bytes;
  REQUIRE(::send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL) ==
          static_cast<ssize_t>(sizeof request));
}

void Peer::start() {
  REQUIRE(init() == kOk);
}

void Peer::start_context() {
  start();
  REQUIRE(context() == kOk);
}

PeerChunk Peer::map_handle(std::uint64_t handle, std::size_t bytes) {
  PeerChunk chunk{handle, 0, bytes};
  REQUIRE(reserve(bytes, &chunk.address) == kOk);
  REQUIRE(map(chunk.address, bytes, handle) == kOk);
  REQUIRE(set_access(chunk.address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == kOk);
  return chunk;
}

PeerChunk Peer::mapped_chunk(std::size_t bytes) {
  std::uint64_t handle = 0;
  REQUIRE(create(bytes, &handle) == kOk);
  return map_handle(handle, bytes);
}

OwnedFd Peer::exported(std::uint64_t handle) {
  OwnedFd fd;
  REQUIRE(export_fd(handle, &fd) == kOk);
  REQUIRE(fd.valid());
  return fd;
}

std::uint64_t Peer::imported(const OwnedFd& fd) {
  std::uint64_t handle = 0;
  REQUIRE(import_fd(fd, &handle) == kOk);
  return handle;
}

std::size_t Peer::free_bytes() {
  std::size_t bytes = 0;
  REQUIRE(mem_info(&bytes) == kOk);
  return bytes;
}

std::uint64_t Peer::word(std::uint64_t address) {
  std::uint64_t value = 0;
  REQUIRE(read_word(address, &value) == kOk);
  return value;
}

}  // namespace apportion::conformance
