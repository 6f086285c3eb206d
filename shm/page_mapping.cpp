#include "shm/page_mapping.hpp"

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>

namespace apportion {

namespace {

// What mapped_region asks of a memory-mappable object: a memfd is one, although Boost has no class for it.
class MemfdMappable {
 public:
  explicit MemfdMappable(int fd) : fd_(fd) {}
  [[nodiscard]] boost::interprocess::mapping_handle_t get_mapping_handle() const { return {fd_, false}; }

 private:
  int fd_;
};

}  // namespace

struct PageMapping::Region {
  boost::interprocess::mapped_region mapped;
};

PageMapping::PageMapping() = default;
PageMapping::PageMapping(PageMapping&&) noexcept = default;
PageMapping& PageMapping::operator=(PageMapping&&) noexcept = default;
PageMapping::~PageMapping() = default;
PageMapping::PageMapping(std::unique_ptr<Region> region) : region_(std::move(region)) {}

Result<PageMapping> PageMapping::map(int memfd, Bytes size, Access access) {
  namespace ipc = boost::interprocess;
  if (size.value == 0) return Error{Errc::protocol, "cannot map a shared page: it is empty"};
  const ipc::mode_t mode = access == Access::read_only ? ipc::read_only : ipc::read_write;
  try {
    auto region = std::make_unique<Region>();
    region->mapped = ipc::mapped_region(MemfdMappable(memfd), mode, 0, size.value);
    return PageMapping(std::move(region));
  } catch (const ipc::interprocess_exception& exception) {
    const int code = exception.get_native_error();
    Error error = system_error("cannot map a shared page of " + to_text(size), code);
    if (code == EPERM || code == EACCES) error.code = Errc::denied;
    return error;
  }
}

void* PageMapping::data() const {
  return region_ ? region_->mapped.get_address() : nullptr;
}
Bytes PageMapping::size() const {
  return {region_ ? region_->mapped.get_size() : 0};
}

}  // namespace apportion
