// A shared mapping of a memfd, made through boost::interprocess::mapped_region (only the .cpp knows Boost).
//
// Promises: keeps no fd; stays valid when the fd is closed, the memfd sealed or the other side gone.
// Never: maps private copies, moves, or grows.
#pragma once

#include <memory>

#include "shm/bytes.hpp"
#include "shm/result.hpp"

namespace apportion {

class PageMapping {
 public:
  enum class Access { read_only, read_write };

  // Maps `size` bytes from the start. Errc::denied where a seal or the fd's mode forbids `access`
  // (F22), Errc::system otherwise.
  [[nodiscard]] static Result<PageMapping> map(int memfd, Bytes size, Access access);

  PageMapping();
  PageMapping(PageMapping&&) noexcept;
  PageMapping& operator=(PageMapping&&) noexcept;
  ~PageMapping();

  // Page-aligned; null where nothing is mapped.
  [[nodiscard]] void* data() const;
  [[nodiscard]] Bytes size() const;

 private:
  struct Region;
  explicit PageMapping(std::unique_ptr<Region> region);
  std::unique_ptr<Region> region_;
};

}  // namespace apportion
