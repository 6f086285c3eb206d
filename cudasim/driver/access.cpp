#include "cudasim/driver/access.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "cudasim/driver/address_space.hpp"
#include "cudasim/driver/codes.hpp"
#include "cudasim/driver/process.hpp"

namespace cudasim {
namespace {

// One stretch of device memory inside one allocation, reachable from the host while this lives.
class Window {
 public:
  Window(const Mapping& mapping, CUdeviceptr address, u64 bytes)
      : span_(mapping.offset + (address - mapping.base) + bytes),
        memory_(mapping.allocation->map(span_, nullptr, PROT_READ | PROT_WRITE)),
        start_(memory_ ? static_cast<char*>(memory_) + (span_ - bytes) : nullptr) {}
  ~Window() {
    if (memory_) ::munmap(memory_, span_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  char* start() const { return start_; }

 private:
  u64 span_;
  void* memory_;
  char* start_;
};

bool allowed(const Mapping& mapping, int device, bool write) {
  const u8 access = mapping.access[static_cast<size_t>(device)];
  return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE || (!write && access == CU_MEM_ACCESS_FLAGS_PROT_READ);
}

// Rules 13, 15, 19: the mapping that the device would reach at `address`.
CUresult mapping_at(Context* context, CUdeviceptr address, bool write, Mapping& out) {
  AddressSpace& space = AddressSpace::get();
  auto mapping = space.find(address);
  if (mapping && allowed(*mapping, context ? context->device : mapping->device, write)) {
    out = std::move(*mapping);
    return CUDA_SUCCESS;
  }
  if (!mapping && !space.find_range(address)) return codes::kUnknownPointer;
  return make_sticky(context, CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Calls each(window start, bytes, offset from `address`) for every mapped stretch of the range.
template <typename Each>
CUresult for_each_window(Context* context, CUdeviceptr address, u64 bytes, bool write, Each each) {
  if (CUresult checked = check_device(context, address, bytes, write); checked != CUDA_SUCCESS)
    return checked;
  for (u64 done = 0; done < bytes;) {
    Mapping mapping;
    if (CUresult code = mapping_at(context, address + done, write, mapping); code != CUDA_SUCCESS)
      return code;
    const u64 length = std::min<u64>(bytes - done, mapping.base + mapping.bytes - (address + done));
    Window window(mapping, address + done, length);
    if (!window.start()) return CUDA_ERROR_OPERATING_SYSTEM;
    each(window.start(), length, done);
    done += length;
  }
  return CUDA_SUCCESS;
}

void fill_bytes(char* target, u64 bytes, u32 pattern, u32 pattern_bytes) {
  if (pattern_bytes == 1) {
    std::memset(target, static_cast<int>(pattern & 0xff), bytes);
    return;
  }
  for (u64 i = 0; i + pattern_bytes <= bytes; i += pattern_bytes)
    std::memcpy(target + i, &pattern, pattern_bytes);
}

// Whole pages of zeros become holes; only the ends are written.
void zero_bytes(char* target, u64 bytes) {
  const u64 start = reinterpret_cast<u64>(target), end = start + bytes;
  const u64 first = (start + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
  if (first < last && ::madvise(reinterpret_cast<void*>(first), last - first, MADV_REMOVE) == 0) {
    std::memset(target, 0, first - start);
    std::memset(reinterpret_cast<void*>(last), 0, end - last);
  } else {
    std::memset(target, 0, bytes);
  }
}

}  // namespace

bool is_device_address(CUdeviceptr address) {
  return AddressSpace::get().find_range(address).has_value();
}

CUresult check_device(Context* context, CUdeviceptr address, u64 bytes, bool write) {
  if (address + bytes < address) return codes::kUnknownPointer;
  for (u64 done = 0; done < bytes;) {
    Mapping mapping;
    CUresult code = mapping_at(context, address + done, write, mapping);
    if (code == codes::kUnknownPointer && done) code = make_sticky(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    if (code != CUDA_SUCCESS) return code;
    done = mapping.base + mapping.bytes - address;
  }
  return CUDA_SUCCESS;
}

CUresult read_device(Context* context, CUdeviceptr source, void* target, u64 bytes) {
  return for_each_window(context, source, bytes, false, [&](char* start, u64 length, u64 offset) {
    std::memcpy(static_cast<char*>(target) + offset, start, length);
  });
}

CUresult write_device(Context* context, CUdeviceptr target, const void* source, u64 bytes) {
  return for_each_window(context, target, bytes, true, [&](char* start, u64 length, u64 offset) {
    std::memcpy(start, static_cast<const char*>(source) + offset, length);
  });
}

CUresult copy_device(Context* context, CUdeviceptr target, CUdeviceptr source, u64 bytes) {
  CUresult inner = check_device(context, target, bytes, true);
  if (inner != CUDA_SUCCESS) return inner;
  const CUresult outer =
      for_each_window(context, source, bytes, false, [&](char* start, u64 length, u64 offset) {
        const CUresult code = write_device(context, target + offset, start, length);
        if (code != CUDA_SUCCESS) inner = code;
      });
  return outer != CUDA_SUCCESS ? outer : inner;
}

CUresult fill_device(Context* context, CUdeviceptr target, u32 pattern, u32 pattern_bytes, u64 count) {
  if (target % pattern_bytes) return CUDA_ERROR_INVALID_VALUE;
  return for_each_window(context, target, count * pattern_bytes, true, [&](char* start, u64 length, u64) {
    if (pattern == 0)
      zero_bytes(start, length);
    else
      fill_bytes(start, length, pattern, pattern_bytes);
  });
}

}  // namespace cudasim
