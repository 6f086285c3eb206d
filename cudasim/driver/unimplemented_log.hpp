// Between the weak fallbacks, which cannot include cuda.h, and the folder's log, whose header does.
#pragma once

namespace cudasim {

// Counts and writes the call to the folder's ring; nothing where there is no folder.
void log_unimplemented(const char* symbol, const char* base, int result);

}  // namespace cudasim
