// A process of this program, spoken to by lines: what its standard input and output are.
#ifndef APPORTION_EXAMPLES_SERVICE_CHILD_HPP
#define APPORTION_EXAMPLES_SERVICE_CHILD_HPP

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

class Child {
 public:
  // Starts this very program with `arguments`. A new program, not a fork: CUDA does not survive fork. Throws
  // std::system_error.
  explicit Child(const std::vector<std::string>& arguments);
  ~Child();  // as end()
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void say(const std::string& line);
  // Its next line; false when it has ended or closed its output.
  bool hear(std::string& line);
  // Closes its input and waits for its end; its exit status, or 128 + the signal that ended it.
  int end();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  int status_ = 0;
};

#endif
