// Questions about ranges and codes: 1, 2, 5, 7, 16.
#include <sys/mman.h>
#include <unistd.h>

#include "question.hpp"

namespace apportion::conformance {

TEST_CASE("question 1: map and set access with no context ever created", "[question]") {
  expected("OK for create, reserve, map, set access; the broker relies on create, export and import alone");
  Scene scene({.observer = false});
  Peer peer = scene.started();
  std::uint64_t handle = 0;
  std::uint64_t address = 0;
  const Answer create = peer.create(kChunk, &handle);
  const Answer reserve = peer.reserve(kChunk, &address);
  const Answer map = peer.map(address, kChunk, handle);
  const Answer access = peer.set_access(address, kChunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const Answer unmap = peer.unmap(address, kChunk);
  seen(joined({told("create", create), told("reserve", reserve), told("map", map), told("set access", access),
               told("unmap", unmap)}));
}

TEST_CASE("question 2: AddressFree while mapped", "[question]") {
  expected("INVALID_VALUE, and the mapping is as it was");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk chunk = peer.mapped_chunk(kChunk);
  const Answer free = peer.address_free(chunk.address, kChunk);
  const Answer write = peer.write_word(chunk.address, 2);
  const Answer unmap = peer.unmap(chunk.address, kChunk);
  seen(joined({told("free", free), told("write after it", write), told("unmap after it", unmap)}));
}

TEST_CASE("question 5: codes of offset, part of a mapping or handle, map on mapped, wrong export type, memfd",
          "[question]") {
  expected("INVALID_VALUE for each");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  const PeerChunk whole = peer.mapped_chunk(2 * kChunk);
  std::uint64_t handle = 0;
  std::uint64_t range = 0;
  REQUIRE(peer.create(2 * kChunk, &handle) == kOk);
  REQUIRE(peer.reserve(4 * kChunk, &range) == kOk);
  std::vector<std::string> codes;
  codes.push_back(told("offset", peer.call(Op::map, {range, kChunk, handle, kChunk})));
  codes.push_back(told("part of a handle", peer.map(range + 2 * kChunk, kChunk, handle)));
  codes.push_back(told("more than a handle", peer.map(range, 3 * kChunk, handle)));
  codes.push_back(told("map on mapped", peer.map(whole.address, 2 * kChunk, handle)));
  codes.push_back(told("part unmap", peer.unmap(whole.address, kChunk)));
  codes.push_back(told("unmap of nothing", peer.unmap(range + kChunk, kChunk)));
  Reply unshared;
  codes.push_back(told("create without types", peer.call(Op::create, {kChunk, 0, 0}, &unshared)));
  OwnedFd fd;
  codes.push_back(told("export of that", peer.export_fd(unshared.value[0], &fd)));
  const OwnedFd memfd(::memfd_create("not-device-memory", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memfd.get(), static_cast<off_t>(kChunk)) == 0);
  codes.push_back(told("import of a memfd", peer.import_fd(memfd, &handle)));
  codes.push_back(told("import of fd -1", peer.import_number(-1, &handle)));
  Reply fabric;
  codes.push_back(
      told("create as FABRIC", peer.call(Op::create, {kChunk, CU_MEM_HANDLE_TYPE_FABRIC, 0}, &fabric)));
  seen(joined(codes));
}

TEST_CASE("question 7: cuMemGetAddressRange and cuIpcGetMemHandle on mapped memory", "[question]") {
  expected("the range is the reservation or the mapping; the IPC handle is INVALID_VALUE");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  std::uint64_t range = 0;
  std::uint64_t handle = 0;
  REQUIRE(peer.reserve(3 * kChunk, &range) == kOk);
  REQUIRE(peer.create(kChunk, &handle) == kOk);
  REQUIRE(peer.map(range + kChunk, kChunk, handle) == kOk);
  REQUIRE(peer.set_access(range + kChunk, kChunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == kOk);
  Reply found;
  const Answer answer = peer.call(Op::address_range, {range + kChunk + 4096}, &found);
  const char* which = "another range";
  if (found.value[0] == range && found.value[1] == 3 * kChunk) which = "the reservation";
  if (found.value[0] == range + kChunk && found.value[1] == kChunk) which = "the mapping";
  std::string blob;
  const Answer mapped = peer.ipc_get(range + kChunk, &blob);
  std::uint64_t plain = 0;
  REQUIRE(peer.mem_alloc(kChunk, &plain) == kOk);
  seen(joined({told("address range", answer), answer.ok() ? which : "no range", told("IPC of mapped", mapped),
               told("IPC of cuMemAlloc", peer.ipc_get(plain, &blob)),
               told("IPC of its inside", peer.ipc_get(plain + 4096, &blob))}));
}

TEST_CASE("question 16: one unmap over several mappings", "[question]") {
  expected("OK; and OK for set access over both");
  Scene scene({.observer = false});
  Peer peer = scene.with_context();
  std::uint64_t range = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  REQUIRE(peer.reserve(2 * kChunk, &range) == kOk);
  REQUIRE(peer.create(kChunk, &first) == kOk);
  REQUIRE(peer.create(kChunk, &second) == kOk);
  REQUIRE(peer.map(range, kChunk, first) == kOk);
  REQUIRE(peer.map(range + kChunk, kChunk, second) == kOk);
  const Answer access = peer.set_access(range, 2 * kChunk, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const Answer unmap = peer.unmap(range, 2 * kChunk);
  seen(joined({told("set access over both", access), told("unmap of both", unmap),
               told("unmap again", peer.unmap(range, 2 * kChunk))}));
}

}  // namespace apportion::conformance
