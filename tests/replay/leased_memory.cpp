// tests/replay/leased_memory.hpp.
#include "tests/replay/leased_memory.hpp"

namespace apportion::replay {
namespace {

Errc code_of(apportion_status status) {
  switch (status) {
    case APPORTION_QUOTA:
      return Errc::quota;
    case APPORTION_OUT_OF_MEMORY:
      return Errc::out_of_memory;
    case APPORTION_NOT_FOUND:
      return Errc::not_found;
    case APPORTION_DENIED:
      return Errc::denied;
    case APPORTION_DISCONNECTED:
      return Errc::disconnected;
    case APPORTION_INVALID:
      return Errc::invalid;
    default:
      return Errc::system;
  }
}

Status status_of(apportion_status status) {
  if (status == APPORTION_OK) return Done{};
  return Error{code_of(status), apportion_last_error()};
}

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

LeasedMemory::~LeasedMemory() {
  if (client_ != nullptr) static_cast<void>(apportion_detach(client_));
}

Status LeasedMemory::start() {
  auto context = PrimaryContext::retain(device_);
  if (!context) return context.error();
  context_ = *std::move(context);
  apportion_attach_options options{};
  options.struct_size = sizeof options;
  options.job = job_.c_str();
  options.flags = reclaimable_ ? APPORTION_RECLAIMABLE : 0;
  return status_of(apportion_attach(&options, &client_));
}

Result<Told> LeasedMemory::told() {
  apportion_info info{};
  info.struct_size = sizeof info;
  if (Status got = status_of(apportion_get_info(client_, &info)); !got) return got.error();
  return Told{.free = {info.free_bytes}, .total = {info.total_bytes}};
}

Result<Block> LeasedMemory::allocate(Bytes size) {
  void* block = nullptr;
  if (Status got = status_of(apportion_allocate(client_, size.value, nullptr, 0, &block)); !got)
    return got.error();
  return Block{reinterpret_cast<std::uint64_t>(block), size};
}

Status LeasedMemory::free(const Block& block) {
  return status_of(apportion_deallocate(client_, pointer(block.address), nullptr));
}

Status LeasedMemory::trim() {
  return status_of(apportion_trim_to(client_, 0, nullptr));
}

Status LeasedMemory::write(std::uint64_t address, std::uint64_t value) {
  return driver_status(device_.driver(), device_.driver().memcpy_htod(address, &value, sizeof value),
                       "cuMemcpyHtoD");
}

Result<std::uint64_t> LeasedMemory::read(std::uint64_t address) {
  std::uint64_t value = 0;
  const CUresult r = device_.driver().memcpy_dtoh(&value, address, sizeof value);
  if (r != CUDA_SUCCESS) return driver_error(device_.driver(), r, "cuMemcpyDtoH");
  return value;
}

}  // namespace apportion::replay
