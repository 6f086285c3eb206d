// The ChunkSource of a session with the ipc transport: slabs from the broker's helper, opened by the handles
// in the job page.
//
// cudaIpc opens a slab where the driver likes and as a whole, so the arena's addresses are names
// (slab_addresses.hpp). Promises: one call of map() is one lease; it is acknowledged only when the slab is
// open, and what cannot be opened is given back (F33). A slab is released to the broker only after the GPU
// was synchronised and the slab is closed (rule 35: its owner frees it then); where closing failed it stays
// leased. All slabs of a session are opened and closed in one context. Of a slab whose owner has died nothing
// is released (F52). Not thread-safe; the arena's slow lock covers it, but for addresses().
#pragma once

#include <map>

#include "gpu/slab.hpp"
#include "libclient/broker_link.hpp"
#include "libclient/device_context.hpp"
#include "libclient/session_source.hpp"
#include "libclient/slab_addresses.hpp"
#include "shm/job_page.hpp"

namespace apportion {

class SlabSource final : public SessionSource {
 public:
  // All outlive it.
  SlabSource(BrokerLink& broker, const Device& device, const JobPageReader& job)
      : broker_(broker), device_(device), job_(job), context_(device) {}
  ~SlabSource() override;

  Result<std::uint32_t> map(Address address, std::uint32_t min, std::uint32_t want) override;
  Status move(std::span<const Address> from, Address to) override;
  Returned unmap(std::span<const Address> chunks) override;
  Status map_exact(Address address, Bytes bytes) override { return open(address, bytes, false); }
  Status unmap_exact(Address address, Bytes bytes) override;
  Status synchronize(Stream stream) override;
  Status wait_for(std::span<const Stream> streams) override { return context_.wait_for(streams); }
  [[nodiscard]] std::vector<Address> take_gone() override;
  [[nodiscard]] bool one_context() const override { return context_.only_primary(); }
  [[nodiscard]] bool lost() const override { return lost_; }

  [[nodiscard]] Status unmap_all() override;

  // From the arena's names to pointers and back. Any thread.
  [[nodiscard]] const SlabAddresses& addresses() const { return addresses_; }

 private:
  struct Lease {
    std::uint64_t id = 0;
    SlabImport import;
    bool gone = false;  // with its owner: nothing to release
  };
  using Leases = std::map<Address, Lease>;
  // A slab of exactly `bytes`, leased and open under this name.
  [[nodiscard]] Status open(Address name, Bytes bytes, bool ahead);
  [[nodiscard]] Status take(Leases::iterator lease, const wire::SlabPlace& granted, Bytes bytes);
  [[nodiscard]] Status close(Leases::iterator lease);
  void tell_released(std::span<const std::uint64_t> ids) noexcept;

  BrokerLink& broker_;
  const Device& device_;
  const JobPageReader& job_;
  DeviceContext context_;
  SlabAddresses addresses_;
  Leases leases_;  // by name
  bool lost_ = false;
};

}  // namespace apportion
