#include "tests/unit/libclient/fake_slabs.hpp"

#include <cstdio>
#include <cstdlib>

#include "tests/support/run_program.hpp"

namespace apportion::testing {

std::string FakeSlabs::ask(const std::string& line) {
  if (maker_ == nullptr) {
    Launch launch;
    launch.command = {built("tests/unit/libclient/slab_maker"), "sim:1GiB"};
    maker_ = std::make_unique<Process>(launch);
  }
  if (!maker_->say(line)) std::abort();
  return maker_->line().value_or("the maker of slabs is gone");
}

std::uint32_t FakeSlabs::make(JobPageWriter& job, std::uint64_t id, Bytes bytes) {
  const std::string hex = ask("make " + std::to_string(id) + " " + std::to_string(bytes.value));
  IpcHandle handle{};
  if (hex.size() != 2 * handle.size()) {
    std::fprintf(stderr, "fake slabs: %s\n", hex.c_str());
    std::abort();
  }
  for (std::size_t at = 0; at < handle.size(); ++at)
    handle[at] = static_cast<std::uint8_t>(std::stoul(hex.substr(2 * at, 2), nullptr, 16));
  std::uint32_t place = 0;
  while (taken_.count(place) != 0)
    ++place;
  taken_.insert(place);
  places_[id] = place;
  job.put_slab(place, id, bytes, handle);
  return place;
}

void FakeSlabs::free(JobPageWriter& job, std::uint64_t id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  job.clear_slab(place->second);
  taken_.erase(place->second);
  places_.erase(place);
  if (ask("free " + std::to_string(id)) != "freed") std::abort();
}

void FakeSlabs::die(JobPageWriter& job) {
  maker_->kill();
  maker_.reset();
  for (const std::uint32_t place : taken_)
    job.clear_slab(place);
  places_.clear();
  taken_.clear();
}

}  // namespace apportion::testing
