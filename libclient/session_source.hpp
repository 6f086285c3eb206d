// What a session needs of its arena's source beyond the arena: an end.
#pragma once

#include "libclient/chunk_source.hpp"

namespace apportion {

class SessionSource : public ChunkSource {
 public:
  // At the end of the session, after a synchronise: unmaps or closes all there is. The broker takes the
  // leases back by itself. An error names the first that failed; the others are done.
  [[nodiscard]] virtual Status unmap_all() = 0;
};

}  // namespace apportion
