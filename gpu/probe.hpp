// Which capabilities work here, found by using each once: attributes lie on WSL2, vGPU and in some containers
// (rule 43).
//
// Promises: leaves nothing behind; takes one granule of device memory at a time, and with `with_context` a
// context of a process that ends the probe. Never: stops at a failure; everything that can still be tried is
// tried. Thread-safety: one probe at a time per process.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/device.hpp"

namespace apportion {

struct Capability {
  std::string name;             // "export as a descriptor"
  std::string used_for;         // "handing chunks to clients"
  bool needed = false;          // the broker cannot start without it
  std::optional<bool> claimed;  // what the device's attribute says; none: there is no attribute
  std::optional<bool> works;    // none: not tried, because what it builds on failed
  std::string detail;           // the error, or a figure
};

struct ProbeOptions {
  // Also what needs a context (memory info, cuMemAlloc, cudaIpc, copies, streams): costs what a context
  // costs, and that memory stays taken until this process ends.
  bool with_context = false;
};

struct ProbeReport {
  DeviceDescription facts;
  std::optional<bool> display;      // a display is active on the device
  std::optional<bool> persistence;  // persistence mode; without it fds held alone may not survive (rule 24)
  std::optional<Bytes> free;        // by NVML
  std::vector<Capability> capabilities;

  // Whether every needed capability works.
  [[nodiscard]] bool usable() const;
  // The first needed capability that does not work, as one line; empty where usable.
  [[nodiscard]] std::string why_not() const;
};

[[nodiscard]] ProbeReport probe(const Device& device, const ProbeOptions& options = {});

}  // namespace apportion
