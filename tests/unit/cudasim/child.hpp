// A process of its own that uses the simulated driver, and the socket to talk with it. The test program
// itself never loads the driver, so that a forked child starts as a fresh process does.
#pragma once
#include <cuda.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "cudasim/control.hpp"

namespace cudasim::testing {

// One end of a socket pair; words and fds, in order. Every failure ends the process (a peer that died).
class Link {
 public:
  explicit Link(int fd) : fd_(fd) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }
  void close();
  void send(u64 word, int fd = -1);
  // The next word; with `fd`, what came with it (-1: none). ~0 when the other end is gone.
  u64 receive(int* fd = nullptr);

 private:
  int fd_;
};

// The driver as a child sees it: loaded on construction, by the names a program gets from cuda.h.
struct Driver {
  Driver();
  template <typename Function>
  Function* get(const char* symbol) const {
    return reinterpret_cast<Function*>(look_up(symbol));
  }
  void* look_up(const char* symbol) const;
  void* library;
};

// SYM(driver, cuMemAlloc)(&p, n)
#define CUDASIM_SYMBOL2(name) #name
#define CUDASIM_SYMBOL(name) CUDASIM_SYMBOL2(name)
#define SYM(driver, name) ((driver).get<decltype(name)>(CUDASIM_SYMBOL(name)))

// Ends the child with exit code 99 and a line when `good` is false.
void must(bool good, const char* what, int line);
#define MUST(expression) ::cudasim::testing::must((expression), #expression, __LINE__)

class Child {
 public:
  struct Options {
    int uid = -1;        // run as this user
    int file_limit = 0;  // RLIMIT_NOFILE
    std::vector<std::pair<std::string, std::string>> environment;
    int error_output = -1;  // fd that becomes its standard error
  };
  Child(const std::string& device_folder, std::function<void(Driver&, Link&)> body, const Options& options);
  Child(const std::string& device_folder, std::function<void(Driver&, Link&)> body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Link& link() { return link_; }
  pid_t pid() const { return pid_; }
  void kill();  // SIGKILL, and waits until it is gone
  int wait();   // its exit code; -signal when it was killed

 private:
  Child(int ends[2], const std::string& device_folder, std::function<void(Driver&, Link&)>& body,
        const Options& options);
  Link link_;
  pid_t pid_ = 0;
  int status_ = 0;
};

// What most bodies do: cuInit, a chunk that can be exported, its mapping, words in it.
CUmemGenericAllocationHandle create_chunk(Driver& driver, u64 bytes);
CUdeviceptr map_chunk(Driver& driver, CUmemGenericAllocationHandle handle, u64 bytes);
int export_chunk(Driver& driver, CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle import_chunk(Driver& driver, int fd);
void use_primary_context(Driver& driver);
void put_word(Driver& driver, CUdeviceptr address, u64 word);
u64 get_word(Driver& driver, CUdeviceptr address);

}  // namespace cudasim::testing
