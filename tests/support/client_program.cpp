// A program that uses libapportion, driven by a test: a command a line in, an answer a line out.
//
//   attach JOB [reclaimable]      ok SESSION        join a job (one session at a time)
//   alloc BYTES | exact BYTES     ok ADDRESS
//   free ADDRESS                  ok
//   write ADDRESS BYTES TAG       ok                first and last 8 bytes of each 2 MiB of it
//   check ADDRESS BYTES TAG       ok BYTES          how many of them still hold what was written
//   trim BYTES                    ok BYTES          given back
//   info                          ok total= free= guarantee= limit= used= charged= chunk= transport=
//   verify                        ok                apportion_check
//   detach                        ok
//   context                       ok                makes the device's context current
//   cycle N JOB BYTES             ok N              attach, alloc (unless 0), free, detach, N times
//   rounds N BYTES PARTIES FILE   ok GRANTED        N times: meet at FILE's barrier, alloc, meet, free and
//   trim fork                          ok PID            the child does nothing (its guard has run) rawfork
//   ok PID            the same by the bare system call, so that nothing is closed forkuse ok STATUS TEXT what
//   a forked child's allocation answers fds                           ok COUNT
//
// An error answers "error APPORTION_NAME TEXT". The end of standard input ends the program without a detach.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/context.hpp"
#include "gpu/device.hpp"
#include "gpu/simulator.hpp"
#include "libclient/include/apportion/apportion.h"
#include "tests/support/barrier.hpp"

namespace apportion::testing {
namespace {

constexpr std::uint64_t kStep = std::uint64_t{2} << 20;

std::string error_of(apportion_status status) {
  return std::string("error ") + apportion_status_name(status) + " " + apportion_last_error();
}

std::string error_of(const Error& error) {
  return std::string("error ") + to_text(error.code) + " " + error.message;
}

std::string ok(const std::string& text = {}) {
  return text.empty() ? "ok" : "ok " + text;
}

std::uint64_t pattern(std::uint64_t tag, std::uint64_t address) {
  std::uint64_t x = tag * 0x9E3779B97F4A7C15u ^ address;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 32);
}

class Program {
 public:
  std::string attach(std::istringstream& words) {
    std::string job;
    std::string flag;
    words >> job >> flag;
    apportion_attach_options options{};
    options.struct_size = sizeof options;
    options.job = job.c_str();
    options.flags = flag == "reclaimable" ? APPORTION_RECLAIMABLE : 0;
    if (const auto status = apportion_attach(&options, &client_); status != APPORTION_OK)
      return error_of(status);
    return ok(std::to_string(info().session_id));
  }

  std::string allocate(std::istringstream& words, std::uint32_t flags) {
    std::uint64_t bytes = 0;
    words >> bytes;
    void* block = nullptr;
    const auto status = apportion_allocate(client_, bytes, nullptr, flags, &block);
    return status == APPORTION_OK ? ok(std::to_string(reinterpret_cast<std::uint64_t>(block)))
                                  : error_of(status);
  }

  std::string free(std::istringstream& words) {
    std::uint64_t address = 0;
    words >> address;
    const auto status = apportion_deallocate(client_, reinterpret_cast<void*>(address), nullptr);
    return status == APPORTION_OK ? ok() : error_of(status);
  }

  std::string pattern_words(std::istringstream& words, bool write) {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t tag = 0;
    words >> address >> bytes >> tag;
    if (Status opened = open_device(); !opened.ok()) return error_of(opened.error());
    std::uint64_t good = 0;
    for (std::uint64_t at = 0; at < bytes; at += kStep) {
      const std::uint64_t size = std::min(kStep, bytes - at);
      bool same = true;
      for (const std::uint64_t where : {address + at, address + at + size - sizeof(std::uint64_t)}) {
        const std::uint64_t wanted = pattern(tag, where);
        std::uint64_t seen = wanted;
        const CUresult r = write ? device_->driver().memcpy_htod(where, &seen, sizeof seen)
                                 : device_->driver().memcpy_dtoh(&seen, where, sizeof seen);
        if (r != CUDA_SUCCESS) return error_of(driver_error(device_->driver(), r, "cuMemcpy"));
        same = same && seen == wanted;
      }
      if (same) good += size;
    }
    return write ? ok() : ok(std::to_string(good));
  }

  // Every byte of one value at both ends of every step.
  std::string stamp(std::istringstream& words) {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    unsigned value = 0;
    words >> address >> bytes >> value;
    if (Status opened = open_device(); !opened.ok()) return error_of(opened.error());
    const std::vector<unsigned char> text(kPeeked, static_cast<unsigned char>(value));
    for (const std::uint64_t where : ends_of_steps(address, bytes)) {
      const CUresult r = device_->driver().memcpy_htod(where, text.data(), text.size());
      if (r != CUDA_SUCCESS) return error_of(driver_error(device_->driver(), r, "cuMemcpy"));
    }
    return ok();
  }

  // The values of the bytes there that are not zero, each once.
  std::string peek(std::istringstream& words) {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    words >> address >> bytes;
    if (Status opened = open_device(); !opened.ok()) return error_of(opened.error());
    std::set<unsigned> values;
    std::vector<unsigned char> text(kPeeked);
    for (const std::uint64_t where : ends_of_steps(address, bytes)) {
      const CUresult r = device_->driver().memcpy_dtoh(text.data(), where, text.size());
      if (r != CUDA_SUCCESS) return error_of(driver_error(device_->driver(), r, "cuMemcpy"));
      values.insert(text.begin(), text.end());
    }
    values.erase(0);
    std::string out;
    for (const unsigned value : values)
      out += (out.empty() ? "" : " ") + std::to_string(value);
    return ok(out);
  }

  std::string trim(std::istringstream& words) {
    std::size_t bytes = 0;
    std::size_t returned = 0;
    words >> bytes;
    const auto status = apportion_trim_to(client_, bytes, &returned);
    return status == APPORTION_OK ? ok(std::to_string(returned)) : error_of(status);
  }

  std::string show_info(std::istringstream&) {
    const apportion_info now = info();
    std::ostringstream out;
    out << "ok total=" << now.total_bytes << " free=" << now.free_bytes
        << " guarantee=" << now.guarantee_bytes << " limit=" << now.limit_bytes << " used=" << now.used_bytes
        << " charged=" << now.charged_bytes << " chunk=" << now.chunk_bytes << " transport=" << now.transport;
    return out.str();
  }

  std::string verify(std::istringstream&) {
    const auto status = apportion_check(client_);
    return status == APPORTION_OK ? ok() : error_of(status);
  }

  std::string detach(std::istringstream&) {
    const auto status = apportion_detach(client_);
    client_ = nullptr;
    return status == APPORTION_OK ? ok() : error_of(status);
  }

  std::string context(std::istringstream&) {
    const Status opened = open_device();
    return opened.ok() ? ok() : error_of(opened.error());
  }

  std::string cycle(std::istringstream& words) {
    unsigned count = 0;
    std::string job;
    std::size_t bytes = 0;
    words >> count >> job >> bytes;
    for (unsigned i = 0; i < count; ++i) {
      apportion_attach_options options{};
      options.struct_size = sizeof options;
      options.job = job.c_str();
      if (const auto status = apportion_attach(&options, &client_); status != APPORTION_OK)
        return error_of(status);
      void* block = nullptr;
      if (bytes != 0) {
        if (const auto status = apportion_allocate(client_, bytes, nullptr, 0, &block);
            status != APPORTION_OK)
          return error_of(status);
      }
      // Every other one leaves a live block to detach.
      if (i % 2 == 0) {
        if (const auto status = apportion_deallocate(client_, block, nullptr); status != APPORTION_OK)
          return error_of(status);
      }
      if (const auto status = apportion_detach(client_); status != APPORTION_OK) return error_of(status);
    }
    client_ = nullptr;
    return ok(std::to_string(count));
  }

  std::string rounds(std::istringstream& words) {
    unsigned count = 0;
    std::size_t bytes = 0;
    unsigned parties = 0;
    std::string file;
    words >> count >> bytes >> parties >> file;
    Barrier barrier(file, parties);
    std::uint64_t granted = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (!barrier.meet()) return "error barrier nobody came";
      void* block = nullptr;
      const auto status = apportion_allocate(client_, bytes, nullptr, 0, &block);
      if (status == APPORTION_OK) {
        ++granted;
      } else if (status != APPORTION_QUOTA) {
        return error_of(status);
      }
      if (!barrier.meet()) return "error barrier nobody came";
      if (block == nullptr) continue;
      if (const auto freed = apportion_deallocate(client_, block, nullptr); freed != APPORTION_OK)
        return error_of(freed);
      if (const auto trimmed = apportion_trim_to(client_, 0, nullptr); trimmed != APPORTION_OK)
        return error_of(trimmed);
    }
    return ok(std::to_string(granted));
  }

  // The child lives until it is killed, or the test that started its parent has ended.
  std::string fork_child(bool raw) {
    const pid_t child =
        raw ? static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr))
            : ::fork();
    if (child == 0) {
      ::close(STDIN_FILENO);
      ::close(STDOUT_FILENO);
      const int test = static_cast<int>(::syscall(SYS_pidfd_open, test_, 0));
      pollfd ended{test, POLLIN, 0};
      (void)::poll(&ended, 1, -1);
      ::_exit(0);
    }
    return child > 0 ? ok(std::to_string(child)) : "error system fork";
  }

  std::string use_in_child(std::istringstream&) {
    int pipe[2];
    if (::pipe(pipe) != 0) return "error system pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      void* block = nullptr;
      std::string text = apportion_status_name(apportion_allocate(client_, 1 << 20, nullptr, 0, &block));
      text += std::string(" ") + apportion_last_error();
      for (const auto status : {apportion_deallocate(client_, nullptr, nullptr),
                                apportion_trim_to(client_, 0, nullptr), apportion_detach(client_)})
        text += std::string(" ") + apportion_status_name(status);
      [[maybe_unused]] const ssize_t n = ::write(pipe[1], text.data(), text.size());
      ::_exit(block == nullptr ? 0 : 1);
    }
    ::close(pipe[1]);
    std::string text;
    char piece[1024];
    for (ssize_t n = 0; (n = ::read(pipe[0], piece, sizeof piece)) > 0;)
      text.append(piece, static_cast<std::size_t>(n));
    ::close(pipe[0]);
    ::waitpid(child, nullptr, 0);
    return ok(text);
  }

  std::string fds(std::istringstream&) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
      ++count;
    return ok(std::to_string(count));
  }

 private:
  static constexpr std::size_t kPeeked = 64;
  static std::vector<std::uint64_t> ends_of_steps(std::uint64_t address, std::uint64_t bytes) {
    std::vector<std::uint64_t> out;
    for (std::uint64_t at = 0; at < bytes; at += kStep) {
      out.push_back(address + at);
      out.push_back(address + std::min(bytes, at + kStep) - kPeeked);
    }
    return out;
  }

  apportion_info info() const {
    apportion_info out{};
    out.struct_size = sizeof out;
    if (client_ != nullptr) static_cast<void>(apportion_get_info(client_, &out));
    return out;
  }

  Status open_device() {
    if (device_) return Done{};
    Result<std::string> driver = find_simulator();
    if (!driver.ok()) return driver.error();
    Result<Device> device = Device::open(info().device_uuid, *driver);
    if (!device.ok()) return device.error();
    device_.emplace(*std::move(device));
    Result<PrimaryContext> made = PrimaryContext::retain(*device_);
    if (!made.ok()) {
      device_.reset();
      return made.error();
    }
    context_ = *std::move(made);
    return Done{};
  }

  const pid_t test_ = ::getppid();
  apportion_client* client_ = nullptr;
  std::optional<Device> device_;
  PrimaryContext context_;
};

int run() {
  Program program;
  const std::map<std::string, std::function<std::string(std::istringstream&)>> commands = {
      {"attach", [&](auto& words) { return program.attach(words); }},
      {"alloc", [&](auto& words) { return program.allocate(words, 0); }},
      {"exact", [&](auto& words) { return program.allocate(words, APPORTION_EXACT); }},
      {"free", [&](auto& words) { return program.free(words); }},
      {"write", [&](auto& words) { return program.pattern_words(words, true); }},
      {"check", [&](auto& words) { return program.pattern_words(words, false); }},
      {"stamp", [&](auto& words) { return program.stamp(words); }},
      {"peek", [&](auto& words) { return program.peek(words); }},
      {"trim", [&](auto& words) { return program.trim(words); }},
      {"info", [&](auto& words) { return program.show_info(words); }},
      {"verify", [&](auto& words) { return program.verify(words); }},
      {"detach", [&](auto& words) { return program.detach(words); }},
      {"context", [&](auto& words) { return program.context(words); }},
      {"cycle", [&](auto& words) { return program.cycle(words); }},
      {"rounds", [&](auto& words) { return program.rounds(words); }},
      {"fork", [&](auto&) { return program.fork_child(false); }},
      {"rawfork", [&](auto&) { return program.fork_child(true); }},
      {"forkuse", [&](auto& words) { return program.use_in_child(words); }},
      {"fds", [&](auto& words) { return program.fds(words); }},
  };
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    const auto found = commands.find(command);
    const std::string answer =
        found == commands.end() ? "error unknown command " + command : found->second(words);
    std::printf("%s\n", answer.c_str());
    std::fflush(stdout);
  }
  std::fflush(stdout);
  ::_exit(0);  // as a program that crashes would leave: no detach
}

}  // namespace
}  // namespace apportion::testing

int main() {
  return apportion::testing::run();
}
