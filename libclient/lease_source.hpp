// The arena's ChunkSource over the real thing: leases from the broker, mapped by the driver.
//
// Promises: a chunk is acknowledged only when it is mapped; what cannot be mapped is given back, and so is
// the rest of a grant of which less than the minimum could be (F33). A chunk is released to the broker only
// after the GPU was synchronised and the chunk unmapped. Not thread-safe; the arena's slow lock covers it.
#pragma once

#include <map>

#include "libclient/broker_link.hpp"
#include "libclient/mapper.hpp"
#include "libclient/session_source.hpp"

namespace apportion {

class LeaseSource final : public SessionSource {
 public:
  // Both outlive it. chunk: the pool's chunk size, as WELCOME said.
  LeaseSource(BrokerLink& broker, const Device& device, Bytes chunk)
      : broker_(broker), mapper_(device), chunk_(chunk) {}

  Result<std::uint32_t> map(Address address, std::uint32_t min, std::uint32_t want) override;
  Status move(std::span<const Address> from, Address to) override;
  Returned unmap(std::span<const Address> chunks) override;
  Status map_exact(Address address, Bytes bytes) override;
  Status unmap_exact(Address address, Bytes bytes) override;
  Status synchronize(Stream stream) override { return mapper_.synchronize(stream); }
  Status wait_for(std::span<const Stream> streams) override { return mapper_.wait_for(streams); }
  [[nodiscard]] bool one_context() const override { return mapper_.one_context(); }
  [[nodiscard]] bool lost() const override { return lost_; }

  [[nodiscard]] Status unmap_all() override;

 private:
  struct Lease {
    std::uint64_t id;
    Bytes bytes;
  };
  // Leases and maps from `address`; nothing stays where less than `min` came.
  [[nodiscard]] Result<Bytes> lease(Address address, Bytes min, Bytes want, std::uint32_t flags);
  [[nodiscard]] Status give_back(Address address, Bytes bytes);
  void tell_released(std::span<const std::uint64_t> ids) noexcept;

  BrokerLink& broker_;
  Mapper mapper_;
  const Bytes chunk_;
  std::map<Address, Lease> leases_;  // by where they are mapped
  bool lost_ = false;
};

}  // namespace apportion
