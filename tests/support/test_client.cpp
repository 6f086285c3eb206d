// tests/support/test_client.hpp.
#include "tests/support/test_client.hpp"

#include <sstream>

#include "tests/support/catch.hpp"
#include "tests/support/run_program.hpp"

namespace apportion::testing {
namespace {

Launch launch_of(const TestBroker& broker, const ClientOptions& options) {
  Launch launch;
  launch.command = {built("tests/support/client_program")};
  launch.variables = options.variables;
  // The library must find the device by what the broker tells it alone.
  launch.variables.insert({{"APPORTION_SOCKET", broker.socket()},
                           {"APPORTION_FAULT", options.fault},
                           {"APPORTION_JOB", ""},
                           {"CUDASIM_DIR", ""},
                           {"CUDASIM_FORCE", ""}});
  launch.uid = options.uid;
  launch.open_files = options.open_files;
  return launch;
}

std::string number(Bytes bytes) {
  return std::to_string(bytes.value);
}

}  // namespace

TestClient::TestClient(const TestBroker& broker, const ClientOptions& options)
    : process_(launch_of(broker, options)) {}

void TestClient::send(const std::string& command) {
  (void)process_.say(command);
}

TestClient::Answer TestClient::answer() {
  Answer answer;
  const std::optional<std::string> line = process_.line();
  if (!line) {
    answer.gone = true;
    return answer;
  }
  std::istringstream words(*line);
  std::string verdict;
  words >> verdict;
  answer.ok = verdict == "ok";
  if (!answer.ok) words >> answer.code;
  words.get();
  std::getline(words, answer.text);
  return answer;
}

std::string TestClient::must(const std::string& command) {
  const Answer got = ask(command);
  INFO("'" << command << "' answered " << (got.gone ? "nothing" : got.code + " " + got.text));
  REQUIRE(got.ok);
  return got.text;
}

std::uint64_t TestClient::attach(const std::string& job, bool reclaimable) {
  return std::stoull(must("attach " + job + (reclaimable ? " reclaimable" : "")));
}

std::uint64_t TestClient::alloc(Bytes bytes) {
  return std::stoull(must("alloc " + number(bytes)));
}
std::uint64_t TestClient::exact(Bytes bytes) {
  return std::stoull(must("exact " + number(bytes)));
}
void TestClient::free(std::uint64_t address) {
  must("free " + std::to_string(address));
}

void TestClient::write(std::uint64_t address, Bytes bytes, std::uint64_t tag) {
  must("write " + std::to_string(address) + " " + number(bytes) + " " + std::to_string(tag));
}

Bytes TestClient::check(std::uint64_t address, Bytes bytes, std::uint64_t tag) {
  return Bytes{std::stoull(
      must("check " + std::to_string(address) + " " + number(bytes) + " " + std::to_string(tag)))};
}

Bytes TestClient::trim(Bytes bytes) {
  return Bytes{std::stoull(must("trim " + number(bytes)))};
}
void TestClient::detach() {
  must("detach");
}

std::map<std::string, Bytes> TestClient::info() {
  std::map<std::string, Bytes> figures;
  std::istringstream words(must("info"));
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    figures[word.substr(0, equals)] = Bytes{std::stoull(word.substr(equals + 1))};
  }
  return figures;
}

}  // namespace apportion::testing
