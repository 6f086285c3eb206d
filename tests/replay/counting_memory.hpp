// A memory of a given size that only counts, for tests of the frameworks' rules.
#pragma once

#include <vector>

#include "tests/replay/memory.hpp"

namespace apportion::replay {

class CountingMemory final : public Memory {
 public:
  // `ranges`: whether it has addresses to fill, as the bare device has and libclient has not.
  explicit CountingMemory(Bytes total, bool ranges = false) : total_(total), ranges_(ranges) {}
  Status start() override { return Done{}; }
  Result<Told> told() override { return Told{.free = total_ - used_, .total = total_}; }
  Result<Block> allocate(Bytes size) override {
    asked.push_back(size);
    if (Status taken = take(size); !taken) return taken.error();
    return Block{addresses(1_GiB), size};
  }
  Status free(const Block& block) override {
    used_ -= block.size;
    freed.push_back(block.size);
    return Done{};
  }
  Result<std::unique_ptr<Range>> reserve(Bytes size) override {
    reserved.push_back(size);
    if (!ranges_) return std::unique_ptr<Range>();
    return std::unique_ptr<Range>(new CountingRange(*this, addresses(size)));
  }
  Status write(std::uint64_t, std::uint64_t) override { return Done{}; }
  Result<std::uint64_t> read(std::uint64_t) override { return std::uint64_t{0}; }

  // Another process takes, or gives back.
  void others_take(Bytes size) { used_ += size; }
  void others_free(Bytes size) { used_ -= size; }
  [[nodiscard]] Bytes used() const { return used_; }

  std::vector<Bytes> asked;  // of allocate, refused ones included
  std::vector<Bytes> freed;
  std::vector<Bytes> reserved;
  struct Page {
    Bytes offset;
    Bytes size;
    Bytes page;
    bool operator==(const Page&) const = default;
  };
  std::vector<Page> filled;  // refused ones not
  std::vector<Page> emptied;

 private:
  class CountingRange final : public Range {
   public:
    CountingRange(CountingMemory& memory, std::uint64_t base) : memory_(memory), base_(base) {}
    [[nodiscard]] std::uint64_t base() const override { return base_; }
    Status fill(Bytes offset, Bytes size, Bytes page) override {
      APPORTION_CHECK(round_up(size, page) == size);
      if (Status taken = memory_.take(size); !taken) return taken;
      memory_.filled.push_back({offset, size, page});
      return Done{};
    }
    Status empty(Bytes offset, Bytes size) override {
      memory_.used_ -= size;
      memory_.emptied.push_back({offset, size, {}});
      return Done{};
    }

   private:
    CountingMemory& memory_;
    std::uint64_t base_;
  };

  Status take(Bytes size) {
    if (used_ + size > total_) return Error{Errc::out_of_memory, "full"};
    used_ += size;
    return Done{};
  }
  std::uint64_t addresses(Bytes size) {  // never neighbours
    next_ += (2_GiB).value;
    const std::uint64_t base = next_;
    next_ += round_up(size, 1_GiB).value;
    return base;
  }

  Bytes total_;
  bool ranges_;
  Bytes used_;
  std::uint64_t next_ = 0;
};

}  // namespace apportion::replay
