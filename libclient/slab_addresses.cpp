#include "libclient/slab_addresses.hpp"

#include <new>

namespace apportion {

bool SlabAddresses::Pages::cover(Address from, Bytes bytes) {
  for (Address leaf = from / kLeafBytes; leaf <= (from + bytes.value - 1) / kLeafBytes; ++leaf) {
    if (leaves_[leaf].load(std::memory_order_relaxed) != nullptr) continue;
    try {
      owned_.emplace_back();
    } catch (const std::bad_alloc&) {
      return false;
    }
    auto* const words = static_cast<std::uint64_t*>(std::calloc(kLeafPages, sizeof(std::uint64_t)));
    if (words == nullptr) return owned_.pop_back(), false;
    owned_.back().reset(words);
    leaves_[leaf].store(words, std::memory_order_release);
  }
  return true;
}

void SlabAddresses::Pages::set(Address from, Bytes bytes, std::uint64_t word) {
  for (Address page = from; page != from + bytes.value; page += kPage.value) {
    std::uint64_t* const leaf = leaves_[page / kLeafBytes].load(std::memory_order_relaxed);
    std::atomic_ref(leaf[page / kPage.value % kLeafPages]).store(word, std::memory_order_release);
  }
}

Status SlabAddresses::add(Address name, Address real, Bytes bytes) {
  for (const Address at : {name, real, bytes.value}) {
    if (at % kPage.value != 0 || at > kEnd - bytes.value) {
      return Error{Errc::driver, "the driver opened a slab at an address that is no multiple of " +
                                     to_text(kPage) +
                                     " or beyond 128 TiB; use transport = \"vmm\" for this job"};
    }
  }
  for (Address page = 0; page != bytes.value; page += kPage.value) {
    if (real_of(name + page) != 0 || name_of(real + page) != 0)
      return Error{Errc::driver, "the driver opened a slab where another one is open already"};
  }
  if (!to_real_.cover(name, bytes) || !to_name_.cover(real, bytes))
    return Error{Errc::out_of_memory, "no host memory"};
  to_real_.set(name, bytes, real - name + 1);
  to_name_.set(real, bytes, name - real + 1);
  return Done{};
}

void SlabAddresses::remove(Address name, Address real, Bytes bytes) {
  to_real_.set(name, bytes, 0);
  to_name_.set(real, bytes, 0);
}

}  // namespace apportion
