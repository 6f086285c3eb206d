// The slabs of a fake broker: made by a process of their own, named in a job page.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "shm/job_page.hpp"
#include "tests/support/process.hpp"

namespace apportion::testing {

class FakeSlabs {
 public:
  static constexpr std::uint32_t kPlaces = 1024;

  // Its place in the job page.
  [[nodiscard]] std::uint32_t make(JobPageWriter& job, std::uint64_t id, Bytes bytes);
  void free(JobPageWriter& job, std::uint64_t id);
  // The owner's death; the next make() starts another.
  void die(JobPageWriter& job);

 private:
  [[nodiscard]] std::string ask(const std::string& line);

  std::unique_ptr<Process> maker_;
  std::map<std::uint64_t, std::uint32_t> places_;  // by id
  std::set<std::uint32_t> taken_;
};

}  // namespace apportion::testing
