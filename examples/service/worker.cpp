#include "worker.hpp"

#include <apportion/apportion.hpp>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "../common/gpu.hpp"

namespace {

constexpr std::size_t kWords = 16 * 1024;  // read back for an answer

// Stands for a model's run, in a workspace of its own size: its last words are filled, and come back.
unsigned long long answer(apportion::Session& session, const Gpu& gpu, std::size_t workspace_bytes,
                          unsigned number) {
  const apportion::Block workspace = session.allocate(workspace_bytes);
  std::vector<std::uint32_t> words(kWords);
  const std::size_t bytes = words.size() * sizeof words[0];
  const CUdeviceptr end = reinterpret_cast<CUdeviceptr>(workspace.data()) + workspace.size() - bytes;
  gpu.require(gpu->memset_d32(end, number, words.size()), "cuMemsetD32");
  gpu.require(gpu->copy_to_host(words.data(), end, bytes), "cuMemcpyDtoH");
  return std::accumulate(words.begin(), words.end(), 0ULL);
}

}  // namespace

unsigned long long expected_answer(unsigned number) {
  return static_cast<unsigned long long>(number) * kWords;
}

void serve(const std::string& job, std::size_t bytes) {
  apportion::Session::Options options;
  options.job = job;
  options.label = "service worker";
  apportion::Session session(options);
  // All the memory that requests will need, before the first one comes: what cannot be had fails the start,
  // and no request. Requests then allocate and free as they like, and ask the broker for nothing.
  session.reserve(bytes);
  const std::uint64_t leased = session.stats().chunks_leased;
  const Gpu gpu(session.info().device_uuid);
  std::puts("ready");
  std::fflush(stdout);
  for (unsigned number = 0; std::cin >> number;) {
    // A quarter of it, half, three quarters, all.
    const std::size_t workspace = bytes / 4 * (number % 4 + 1);
    std::printf("%llu\n", answer(session, gpu, workspace, number));
    std::fflush(stdout);
  }
  if (session.stats().chunks_leased != leased)
    throw std::runtime_error("requests needed more than was reserved");
}
