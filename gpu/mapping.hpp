// Address ranges, and chunks mapped into them.
//
// Owns: AddressRange owns addresses; Mapping owns addresses and what it mapped there. Promises: a call that
// fails at its nth step leaves nothing behind (F33): no mapping, no access, no addresses. Never: waits for
// the GPU (rule 18: quiesce, synchronise, then unmap); keeps chunks' handles (rule 8: release right after
// mapping). Thread-safety: none for one object; the driver locks inside. Take a CaptureGuard on threads that
// are the user's.
#pragma once

#include <span>

#include "gpu/chunk.hpp"

namespace apportion {

class AddressRange {
 public:
  AddressRange() = default;  // empty
  AddressRange(AddressRange&& other) noexcept;
  AddressRange& operator=(AddressRange&& other) noexcept;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();  // everything in it must be unmapped (rule 11)

  // `size`: a multiple of the granularity. `alignment`: a power of two, or 0 for the driver's. `wish`: an
  // address the driver may ignore (rule 10); base() says what came back. Errors: out_of_memory, driver.
  static Result<AddressRange> reserve(const Device& device, Bytes size, Bytes alignment = {},
                                      CUdeviceptr wish = 0);
  // Gives the addresses back now. On an error they are still owned.
  Status free();

  [[nodiscard]] bool empty() const { return driver_ == nullptr; }
  [[nodiscard]] CUdeviceptr base() const { return base_; }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  const DriverTable* driver_ = nullptr;
  CUdeviceptr base_ = 0;
  Bytes size_;
};

// Maps `chunks` one after the other from `at`, then sets read and write access in one call for the whole run
// (rule 15). The addresses are reserved and not mapped. On an error nothing is mapped; should undoing fail
// too, the message says so, *stuck (which may be null) becomes true, and the addresses must not be used
// again.
[[nodiscard]] Status map_run(const Device& device, CUdeviceptr at, std::span<const Chunk* const> chunks,
                             bool* stuck = nullptr);

// Unmaps [at, at + size), which covers exactly whole mappings, in one call (rule 17). On an error all are
// still there.
[[nodiscard]] Status unmap_run(const DriverTable& driver, CUdeviceptr at, Bytes size);

// A run of chunks at addresses of its own, until it is unmapped or goes.
class Mapping {
 public:
  Mapping() = default;  // empty
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  static Result<Mapping> map(const Device& device, std::span<const Chunk* const> chunks);
  static Result<Mapping> map(const Device& device, const Chunk& chunk);
  // Unmaps and gives the addresses back. On an error what was not done is still owned.
  Status unmap();

  [[nodiscard]] CUdeviceptr base() const { return range_.base(); }
  [[nodiscard]] Bytes size() const { return range_.size(); }

 private:
  const DriverTable* driver_ = nullptr;  // set while mapped
  AddressRange range_;
};

}  // namespace apportion
