// tests/replay/behind_the_back.hpp.
#include "tests/replay/behind_the_back.hpp"

#include <poll.h>

#include <chrono>

#include "shm/channel.hpp"
#include "shm/socket_path.hpp"

namespace apportion::replay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{30};
constexpr int kPauseMs = 10;

// Tries until it gives something or the deadline passes; waits in poll.
template <typename Try>
auto until(Clock::time_point deadline, Try&& attempt) {
  auto result = attempt();
  while (!result && Clock::now() < deadline) {
    poll(nullptr, 0, kPauseMs);
    result = attempt();
  }
  return result;
}

}  // namespace

Status pass_chunk(const Device& device, CUdeviceptr address, const std::string& path) {
  const auto deadline = Clock::now() + kPatience;
  const DriverTable& driver = device.driver();
  CUmemGenericAllocationHandle handle = 0;
  CUresult r = driver.mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(address));
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemRetainAllocationHandle");
  int exported = -1;
  r = driver.mem_export_to_shareable_handle(&exported, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const Fd fd(exported);
  static_cast<void>(driver.mem_release(handle));
  if (r != CUDA_SUCCESS) return driver_error(driver, r, "cuMemExportToShareableHandle");
  auto listening = listen_at(path, 0600);
  if (!listening) return listening.error();
  auto peer = until(deadline, [&] { return accept_from(listening->get()); });
  if (!peer) return peer.error();
  const std::byte word{1};
  const int sent = fd.get();
  return channel::send(peer->get(), {&word, 1}, {&sent, 1}, deadline);
}

Result<Mapping> take_chunk(const Device& device, Bytes size, const std::string& path) {
  const auto deadline = Clock::now() + kPatience;
  auto socket = until(deadline, [&] { return connect_to(path); });
  if (!socket) return socket.error();
  channel::Datagram datagram;
  if (Status got = channel::receive(socket->get(), datagram, deadline); !got) return got.error();
  if (Status one = channel::require_fds(datagram, 1); !one) return one.error();
  auto chunk = Chunk::import(device, datagram.fds.front(), size);
  if (!chunk) return chunk.error();
  return Mapping::map(device, *chunk);
}

}  // namespace apportion::replay
