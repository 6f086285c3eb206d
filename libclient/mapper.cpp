#include "libclient/mapper.hpp"

#include "shm/fault_point.hpp"

namespace apportion {

namespace {

std::vector<const Chunk*> pointers(const std::vector<Chunk>& chunks) {
  std::vector<const Chunk*> list;
  list.reserve(chunks.size());
  for (const Chunk& chunk : chunks)
    list.push_back(&chunk);
  return list;
}

}  // namespace

Status Mapper::map(Address at, std::span<const wire::ChunkEntry> entries, std::vector<Fd> fds) {
  lost_ = false;
  APPORTION_CHECK(entries.size() == fds.size());
  return context_.run([&]() -> Status {
    std::vector<Chunk> chunks;  // their handles go with it, mapped or not
    chunks.reserve(entries.size());
    for (std::size_t index = 0; index < entries.size(); ++index) {
      Result<Chunk> chunk = Chunk::import(device_, fds[index], Bytes{entries[index].bytes});
      if (!chunk) return chunk.error();
      fds[index].reset();
      chunks.push_back(*std::move(chunk));
    }
    APPORTION_FAULT_POINT("client.before_map");
    const auto list = pointers(chunks);
    return map_run(device_, at, list, &lost_);
  });
}

Status Mapper::unmap(Address at, Bytes bytes) {
  lost_ = false;
  return context_.run([&] {
    Status unmapped = unmap_run(device_.driver(), at, bytes);
    lost_ = !unmapped;
    return unmapped;
  });
}

Status Mapper::move(std::span<const Address> from, Address to, Bytes chunk) {
  lost_ = false;
  return context_.run([&]() -> Status {
    std::vector<Chunk> chunks;
    chunks.reserve(from.size());
    for (const Address address : from) {
      Result<Chunk> one = Chunk::at(device_, address, chunk);
      if (!one) return one.error();
      chunks.push_back(*std::move(one));
    }
    const auto list = pointers(chunks);
    if (Status mapped = map_run(device_, to, list, &lost_); !mapped) return mapped;
    // Each chunk is at two addresses now (rule 14).
    for (std::size_t index = 0; index < from.size(); ++index) {
      Status unmapped = unmap_run(device_.driver(), from[index], chunk);
      if (unmapped) continue;
      // Back to where they were; should that fail too, memory that is not mapped would be handed out.
      lost_ = true;
      for (std::size_t done = 0; done < index; ++done) {
        APPORTION_CHECK(map_run(device_, from[done], std::span(&list[done], 1)).ok());
      }
      static_cast<void>(unmap_run(device_.driver(), to, chunk * from.size()));
      return unmapped;
    }
    return Done{};
  });
}

Status Mapper::wait_for(std::span<const Stream> streams) {
  lost_ = false;
  return context_.wait_for(streams);
}

Status Mapper::synchronize(Stream stream) {
  lost_ = false;
  if (stream == kNoStream) return context_.synchronize({0});
  return context_.synchronize({0, stream});
}

}  // namespace apportion
