#include "cudasim/driver/transfer.hpp"

#include <cstring>

#include "cudasim/driver/access.hpp"
#include "cudasim/driver/host_memory.hpp"

namespace cudasim {
namespace {

bool is_pinned(const void* address) {
  return find_host_memory(as_address(address)).has_value();
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

u64 row(const Side& side, u64 y, u64 z) {
  return side.address + y * side.pitch + z * side.slice;
}
// From the first to the last byte.
Use extent(const Transfer& copy, const Side& side) {
  return {side.address, (copy.height - 1) * side.pitch + (copy.depth - 1) * side.slice + copy.width};
}

CUresult copy_row(Context* context, CUdeviceptr to, CUdeviceptr from, u64 bytes, bool to_device,
                  bool from_device) {
  if (to_device && from_device) return copy_device(context, to, from, bytes);
  if (to_device) return write_device(context, to, pointer(from), bytes);
  if (from_device) return read_device(context, from, pointer(to), bytes);
  std::memmove(pointer(to), pointer(from), bytes);
  return CUDA_SUCCESS;
}

CUresult run(Context* context, const Transfer& copy, bool to_device, bool from_device) {
  for (u64 z = 0; z < copy.depth; ++z) {
    for (u64 y = 0; y < copy.height; ++y) {
      const CUresult result =
          copy_row(context, row(copy.to, y, z), row(copy.from, y, z), copy.width, to_device, from_device);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

// The source's rows, packed: what a driver stages of pageable memory before it returns.
std::shared_ptr<std::vector<char>> stage(const Transfer& copy) {
  auto bytes = std::make_shared<std::vector<char>>(copy.width * copy.height * copy.depth);
  u64 at = 0;
  for (u64 z = 0; z < copy.depth; ++z) {
    for (u64 y = 0; y < copy.height; ++y, at += copy.width) {
      std::memcpy(bytes->data() + at, pointer(row(copy.from, y, z)), copy.width);
    }
  }
  return bytes;
}

}  // namespace

CUresult transfer(const Transfer& copy, CUstream handle, Default meaning, Wait wait) {
  if (copy.width == 0 || copy.height == 0 || copy.depth == 0) return CUDA_SUCCESS;
  if (copy.to.address == 0 || copy.from.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (copy.height > 1 && (copy.to.pitch < copy.width || copy.from.pitch < copy.width))
    return CUDA_ERROR_INVALID_VALUE;

  Context* context = current_context();
  const bool to_device = is_device_address(copy.to.address),
             from_device = is_device_address(copy.from.address);
  Work work{.what = copy.what, .duration_ns = transfer_ns(copy.width * copy.height * copy.depth)};
  if (to_device) work.uses.push_back(extent(copy, copy.to));
  if (from_device) work.uses.push_back(extent(copy, copy.from));
  work.effect = [context, copy, to_device, from_device] {
    return run(context, copy, to_device, from_device);
  };

  // Between device addresses the host is not held up, whichever form was called.
  if (wait == Wait::kYes) {
    return to_device && from_device ? submit(nullptr, meaning, std::move(work))
                                    : submit_and_wait(meaning, std::move(work));
  }

  std::shared_ptr<Stream> stream;
  const CUresult found = Streams::get().find(handle, meaning, stream);
  if (found != CUDA_SUCCESS) return found;
  const bool captured = Captures::get().status(*stream) != CU_STREAM_CAPTURE_STATUS_NONE;
  if (!captured && !from_device && !is_pinned(pointer(copy.from.address))) {
    const auto staged = stage(copy);
    Transfer packed = copy;
    packed.from = {as_address(staged->data()), copy.width, copy.width * copy.height};
    work.effect = [context, packed, staged, to_device] { return run(context, packed, to_device, false); };
  }
  const CUresult given = submit(handle, meaning, std::move(work));
  if (given != CUDA_SUCCESS || captured || to_device || is_pinned(pointer(copy.to.address))) return given;
  return Streams::get().wait(Streams::get().last(stream));
}

}  // namespace cudasim
