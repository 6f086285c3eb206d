// A client process in a test's hands: tests/support/client_program.cpp does what it is told.
//
// Promises: each call waits for the answer, with a deadline. The shorthands fail the test where the answer is
// an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/support/process.hpp"
#include "tests/support/test_broker.hpp"

namespace apportion::testing {

struct ClientOptions {
  std::optional<uid_t> uid = {};
  std::optional<rlim_t> open_files = {};
  std::string fault = {};  // APPORTION_FAULT
  std::map<std::string, std::string> variables = {};
};

class TestClient {
 public:
  struct Answer {
    bool ok = false;
    bool gone = false;  // it died before it answered
    std::string code;   // "APPORTION_QUOTA"
    std::string text;
  };

  explicit TestClient(const TestBroker& broker, const ClientOptions& options = {});

  void send(const std::string& command);
  [[nodiscard]] Answer answer();
  [[nodiscard]] Answer ask(const std::string& command) {
    send(command);
    return answer();
  }
  // The answer's text; fails the test where it is an error.
  std::string must(const std::string& command);

  std::uint64_t attach(const std::string& job, bool reclaimable = false);  // the session's id
  std::uint64_t alloc(Bytes bytes);                                        // the address
  std::uint64_t exact(Bytes bytes);
  void free(std::uint64_t address);
  void write(std::uint64_t address, Bytes bytes, std::uint64_t tag);
  [[nodiscard]] Bytes check(std::uint64_t address, Bytes bytes, std::uint64_t tag);
  Bytes trim(Bytes bytes = {});
  void detach();
  std::map<std::string, Bytes> info();

  [[nodiscard]] pid_t pid() const { return process_.pid(); }
  void kill() { process_.kill(); }
  [[nodiscard]] Process& process() { return process_; }

 private:
  Process process_;
};

}  // namespace apportion::testing
