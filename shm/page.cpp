#include "shm/page.hpp"

#include <cstring>
#include <string>

namespace apportion {

Status check_page(const void* page, Bytes mapped, const PageKind& kind) {
  const std::string name = kind.name;
  if (mapped.value < sizeof(PageHeader)) {
    return Error{Errc::protocol, "the " + name + " is damaged: it is shorter than its header"};
  }
  PageHeader header;
  std::memcpy(&header, page, sizeof header);
  if (header.magic != kind.magic)
    return Error{Errc::protocol, "a shared page is not a " + name + ": wrong magic"};
  if (header.major != kind.major) {  // F19
    return Error{Errc::protocol, "the " + name + " has layout " + std::to_string(header.major) + "." +
                                     std::to_string(header.minor) + ", this program reads " +
                                     std::to_string(kind.major) + "." + std::to_string(kind.minor) +
                                     ": install the same version of Apportion for broker and programs"};
  }
  if (header.page_bytes != mapped.value || header.header_bytes > mapped.value) {
    return Error{Errc::protocol, "the " + name + " is damaged: its sizes do not fit its memory"};
  }
  return Done{};
}

}  // namespace apportion
