// A growing cache in a job: takes blocks until the job's limit, drops half, and goes on. See README.md.
#include <apportion/apportion.hpp>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  try {
    apportion::Session::Options options;
    if (argc > 1) options.job = argv[1];
    options.label = "example_cpp";
    apportion::Session session(options);

    const std::size_t block_bytes = session.info().free_bytes / 8;
    std::vector<apportion::Block> cache;
    try {
      for (int i = 0; i < 64; ++i)
        cache.push_back(session.allocate(block_bytes));
    } catch (const apportion::Failure& full) {
      // The line says what was asked, what is used, and who holds the rest.
      std::printf("full after %zu blocks: %s\n", cache.size(), full.what());
    }

    cache.resize(cache.size() / 2);  // each block frees itself
    const apportion::Block larger = session.allocate(2 * block_bytes);
    const apportion_stats stats = session.stats();
    std::printf("in use %llu MiB of %llu MiB leased, fragmentation %.2f\n",
                static_cast<unsigned long long>(stats.bytes_in_use >> 20),
                static_cast<unsigned long long>(stats.pool_bytes >> 20), stats.fragmentation);
    return 0;
  } catch (const apportion::Failure& failure) {
    std::fprintf(stderr, "example_cpp: %s\n", failure.what());
    return 1;
  }
}
