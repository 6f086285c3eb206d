// Trying each capability in turn: gpu/probe.hpp.
#include "gpu/probe.hpp"

#include <algorithm>

#include "gpu/capture_guard.hpp"
#include "gpu/chunk.hpp"
#include "gpu/context.hpp"
#include "gpu/device_monitor.hpp"
#include "gpu/mapping.hpp"

namespace apportion {
namespace {

constexpr bool kNeeded = true;
constexpr bool kOptional = false;

class Prober {
 public:
  Prober(const Device& device, ProbeReport& report)
      : device_(device), driver_(device.driver()), size_(device.facts().granularity), report_(report) {}

  void nvml() {
    Capability& memory = add("device memory by NVML", "free and total without a context", kNeeded);
    Capability& processes = add("device processes by NVML", "showing who else holds memory", kOptional);
    auto monitor = DeviceMonitor::open(device_);
    if (!monitor) return tried(memory, monitor.error());
    if (auto read = monitor->memory()) {
      report_.free = read->free;
      tried(memory, to_text(read->free) + " free of " + to_text(read->total));
    } else {
      tried(memory, read.error());
    }
    if (auto read = monitor->processes())
      tried(processes, std::to_string(read->size()) + " processes");
    else
      tried(processes, read.error());
    report_.display = monitor->display();
    report_.persistence = monitor->persistence();
  }

  void chunks() {
    Capability& create = add("create a chunk", "the pool", kNeeded, device_.facts().vmm);
    Capability& fabric =
        add("create for fabric handles", "chunks across nodes", kOptional, device_.facts().fabric);
    Capability& rdma =
        add("create for RDMA", "registering chunks with a network card", kOptional, device_.facts().rdma);
    Capability& exported =
        add("export as a descriptor", "handing chunks over", kNeeded, device_.facts().posix_fd);
    Capability& imported =
        add("import from a descriptor", "the next broker; clients", kNeeded, device_.facts().posix_fd);
    Capability& again = add("export an imported chunk", "the next broker", kNeeded);
    ChunkMaker maker(device_);
    auto chunk = maker.make(size_);
    if (!chunk) return tried(create, chunk.error());
    tried(create);
    refused_or(fabric, device_.facts().fabric, maker.fabric());
    refused_or(rdma, device_.facts().rdma, maker.rdma());
    auto fd = chunk->export_fd();
    if (!fd) return tried(exported, fd.error());
    tried(exported);
    auto other = Chunk::import(device_, *fd, size_);
    if (!other) return tried(imported, other.error());
    tried(imported);
    auto second = other->export_fd();
    if (!second) return tried(again, second.error());
    tried(again);
  }

  // `where` says under which conditions: the open question is whether mapping works before any context
  // exists.
  void mapping(const std::string& where, bool needed) {
    Capability& reserve = add("reserve addresses" + where, "the arena", needed);
    Capability& map = add("map and set access" + where, "the arena", needed);
    Capability& release = add("release while mapped" + where, "mappings that keep their memory", needed);
    Capability& unmap = add("unmap" + where, "giving chunks back", needed);
    auto range = AddressRange::reserve(device_, size_);
    if (!range) return tried(reserve, range.error());
    tried(reserve);
    ChunkMaker maker(device_);
    auto chunk = maker.make(size_);
    if (!chunk) return tried(map, chunk.error());
    const Chunk* const run[] = {&*chunk};
    if (Status s = map_run(device_, range->base(), run); !s) return tried(map, s.error());
    tried(map);
    if (Status s = chunk->release(); s)
      tried(release);
    else
      tried(release, s.error());
    if (Status s = unmap_run(driver_, range->base(), size_); s)
      tried(unmap);
    else
      tried(unmap, s.error());
  }

  void with_context() {
    Capability& made = add("make a context", "clients; scrubbing", kOptional);
    auto context = PrimaryContext::retain(device_);
    if (!context) return tried(made, context.error());
    tried(made);
    mapping(", with a context", kOptional);
    call("free and total by the driver", "clients", [&] {
      std::size_t free = 0;
      std::size_t total = 0;
      return driver_status(driver_, driver_.mem_get_info(&free, &total), "cuMemGetInfo");
    });
    call("capture mode of a thread", "library threads beside a stream capture", [&] {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      Status s = driver_status(driver_, driver_.thread_exchange_stream_capture_mode(&mode),
                               "cuThreadExchangeStreamCaptureMode");
      if (s) static_cast<void>(driver_.thread_exchange_stream_capture_mode(&mode));
      return s;
    });
    call("streams and events", "stream-ordered reuse", [&] { return stream_and_event(); });
    slab();
  }

 private:
  Capability& add(std::string name, const char* used_for, bool needed, std::optional<bool> claimed = {}) {
    APPORTION_CHECK(report_.capabilities.size() < report_.capabilities.capacity());  // references stay good
    report_.capabilities.push_back({std::move(name), used_for, needed, claimed, {}, {}});
    return report_.capabilities.back();
  }
  static void tried(Capability& capability, const Error& error) {
    capability.works = false;
    capability.detail = error.message;
  }
  static void tried(Capability& capability, std::string detail = {}) {
    capability.works = true;
    capability.detail = std::move(detail);
  }
  static void refused_or(Capability& capability, bool claimed, bool works) {
    capability.works = works;
    if (!works)
      capability.detail = claimed ? "the attribute says yes, the call was refused" : "not on this device";
  }
  template <typename Try>
  void call(const char* name, const char* used_for, Try&& attempt) {
    Capability& capability = add(name, used_for, kOptional);
    if (Status s = attempt(); s)
      tried(capability);
    else
      tried(capability, s.error());
  }

  Status stream_and_event() {
    CUstream stream = nullptr;
    if (const CUresult r = driver_.stream_create(&stream, CU_STREAM_NON_BLOCKING); r != CUDA_SUCCESS)
      return driver_error(driver_, r, "cuStreamCreate");
    CUevent event = nullptr;
    CUresult r = driver_.event_create(&event, CU_EVENT_DISABLE_TIMING);
    const char* call = "cuEventCreate";
    if (r == CUDA_SUCCESS) {
      r = driver_.event_record(event, stream);
      call = "cuEventRecord";
      if (r == CUDA_SUCCESS) {
        r = driver_.event_synchronize(event);
        call = "cuEventSynchronize";
      }
      static_cast<void>(driver_.event_destroy(event));
    }
    static_cast<void>(driver_.stream_destroy(stream));
    return driver_status(driver_, r, call);
  }

  void slab() {
    Capability& alloc = add("cuMemAlloc", "slabs; unmodified programs", kOptional);
    Capability& copies = add("memset and copy back", "scrubbing", kOptional);
    Capability& handle = add("cudaIpc handle", "transport = \"ipc\"", kOptional);
    CUdeviceptr pointer = 0;
    if (const CUresult r = driver_.mem_alloc(&pointer, size_.value); r != CUDA_SUCCESS)
      return tried(alloc, driver_error(driver_, r, "cuMemAlloc"));
    tried(alloc);
    constexpr unsigned char kPattern = 0xA5;
    unsigned char seen = 0;
    CUresult r = driver_.memset_d8(pointer, kPattern, size_.value);
    if (r == CUDA_SUCCESS) r = driver_.memcpy_dtoh(&seen, pointer + size_.value - 1, 1);
    if (r != CUDA_SUCCESS)
      tried(copies, driver_error(driver_, r, "cuMemsetD8, cuMemcpyDtoH"));
    else if (seen != kPattern)
      tried(copies, Error{Errc::driver, "another byte came back than was written"});
    else
      tried(copies);
    CUipcMemHandle ipc{};
    if (const CUresult got = driver_.ipc_get_mem_handle(&ipc, pointer); got == CUDA_SUCCESS)
      tried(handle);
    else
      tried(handle, driver_error(driver_, got, "cuIpcGetMemHandle"));
    static_cast<void>(driver_.mem_free(pointer));
  }

  const Device& device_;
  const DriverTable& driver_;
  Bytes size_;
  ProbeReport& report_;
};

}  // namespace

bool ProbeReport::usable() const {
  return why_not().empty();
}

std::string ProbeReport::why_not() const {
  const auto bad = std::find_if(capabilities.begin(), capabilities.end(),
                                [](const Capability& c) { return c.needed && c.works != true; });
  if (bad == capabilities.end()) return {};
  // What was not tried has its reason in what failed before it.
  const auto cause = std::find_if(capabilities.begin(), capabilities.end(),
                                  [](const Capability& c) { return c.needed && c.works == false; });
  const Capability& shown = cause == capabilities.end() ? *bad : *cause;
  return "'" + shown.name + "' does not work on " + facts.name + " (" + facts.uuid + "): " + shown.detail;
}

ProbeReport probe(const Device& device, const ProbeOptions& options) {
  ProbeReport report;
  report.facts = device.facts();
  report.capabilities.reserve(32);  // Prober keeps references into it
  CaptureGuard guard(device.driver());
  Prober prober(device, report);
  prober.nvml();
  prober.chunks();
  // The broker maps nothing: this only answers whether it could.
  prober.mapping(", without a context", false);
  if (options.with_context) prober.with_context();
  return report;
}

}  // namespace apportion
