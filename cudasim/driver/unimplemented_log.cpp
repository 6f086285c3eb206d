#include "cudasim/driver/unimplemented_log.hpp"

#include "cudasim/driver/process.hpp"

namespace cudasim {

void log_unimplemented(const char* symbol, const char* base, int result) {
  const Folder* folder = Process::get().folder();
  if (folder == nullptr) return;
  const u32 function = folder->function_index(base);
  folder->page().unimplemented.fetch_add(1);
  folder->page().functions[function].called.fetch_add(1);
  folder->log(RecordKind::kUnimplemented, function, result, 0, 0, symbol);
}

}  // namespace cudasim
