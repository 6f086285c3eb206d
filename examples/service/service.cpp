// A service of three processes that reserve their device memory at their start, all under one job.
//
//   example_service [JOB [MIB]]
//
//   JOB  the job to join; without it APPORTION_JOB, else the config's [jobs.default]
//   MIB  for each process; 512 where not given
//
// The three start one after the other and say that they are ready; only then are requests taken. When the job
// has no room for one of them, the service does not start, and says why: that is what reserving is for.
// Exit status: 0 when every request was answered right.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "child.hpp"
#include "worker.hpp"

namespace {

constexpr unsigned kProcesses = 3;
constexpr unsigned kRequests = 30;

using Children = std::vector<std::unique_ptr<Child>>;

// All of them, ready; or fewer, when one could not start.
Children start(const std::string& job, const std::string& mib) {
  Children children;
  for (unsigned i = 0; i < kProcesses; ++i) {
    auto child = std::make_unique<Child>(std::vector<std::string>{"--worker", job, mib});
    std::string line;
    if (!child->hear(line) || line != "ready") break;
    children.push_back(std::move(child));
  }
  return children;
}

// Each request goes to the next process, and its answer is waited for; the number of right ones.
unsigned answer_requests(const Children& children) {
  unsigned right = 0;
  for (unsigned number = 0; number < kRequests; ++number) {
    Child& child = *children[number % children.size()];
    std::string line;
    child.say(std::to_string(number));
    if (child.hear(line) && line == std::to_string(expected_answer(number))) ++right;
  }
  return right;
}

int run(const std::string& job, const std::string& mib) {
  const Children children = start(job, mib);
  if (children.size() < kProcesses) {
    std::fprintf(stderr, "example_service: process %zu of %u did not start: no request is taken\n",
                 children.size() + 1, kProcesses);
    return 1;
  }
  std::printf("%u processes are ready, each with %s MiB\n", kProcesses, mib.c_str());
  const unsigned right = answer_requests(children);
  std::printf("%u of %u requests were answered right\n", right, kRequests);
  int failed = right == kRequests ? 0 : 1;
  for (const auto& child : children)
    failed |= child->end();
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a worker that died is a line that does not come
  try {
    if (argc == 4 && std::string(argv[1]) == "--worker") {
      serve(argv[2], std::strtoull(argv[3], nullptr, 10) << 20);
      return 0;
    }
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "512");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "example_service: %s\n", failure.what());
    return 1;
  }
}
