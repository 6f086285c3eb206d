// From the arena's names to where slabs really are, and back.
//
// cudaIpc opens a slab wherever the driver likes, so in a session of that transport the arena's addresses are
// names that no memory has. Promises: a look-up is two loads and takes no lock; a pointer that lies in no
// slab has no name. Never: a driver call; knows a block. Look-ups: any thread, also while another changes the
// table; changes: one thread at a time. A block's owner may look it up for as long as its slab is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "libclient/chunk_source.hpp"

namespace apportion {

class SlabAddresses {
 public:
  // Both ends of a slab are multiples of this, by name and in reality.
  static constexpr Bytes kPage{2 << 20};
  // Names and device addresses lie below.
  static constexpr Address kEnd = Address{1} << 47;

  // From here on `bytes` at `name` are those at `real`. Errors: driver (not aligned, beyond kEnd, or another
  // slab is there already); out_of_memory. Then nothing has changed.
  [[nodiscard]] Status add(Address name, Address real, Bytes bytes);
  // What add() was given.
  void remove(Address name, Address real, Bytes bytes);

  // 0: in no slab.
  [[nodiscard]] Address real_of(Address name) const { return to_real_.translate(name); }
  [[nodiscard]] Address name_of(Address real) const { return to_name_.translate(real); }

 private:
  // One word a page: what to add to an address in it, and 1 that it is there.
  class Pages {
   public:
    [[nodiscard]] Address translate(Address from) const {
      if (from >= kEnd) return 0;
      std::uint64_t* const leaf = leaves_[from / kLeafBytes].load(std::memory_order_acquire);
      if (leaf == nullptr) return 0;
      const std::uint64_t word =
          std::atomic_ref(leaf[from / kPage.value % kLeafPages]).load(std::memory_order_acquire);
      return word != 0 ? from + (word - 1) : 0;
    }
    // False: no host memory.
    [[nodiscard]] bool cover(Address from, Bytes bytes);
    // Covered addresses. 0 takes them out.
    void set(Address from, Bytes bytes, std::uint64_t word);

   private:
    static constexpr std::uint64_t kLeafPages = 1 << 13;
    static constexpr std::uint64_t kLeafBytes = kPage.value * kLeafPages;
    struct Free {
      void operator()(std::uint64_t* leaf) const { std::free(leaf); }
    };
    std::vector<std::atomic<std::uint64_t*>> leaves_{kEnd / kLeafBytes};
    std::vector<std::unique_ptr<std::uint64_t, Free>> owned_;
  };

  Pages to_real_;
  Pages to_name_;
};

}  // namespace apportion
