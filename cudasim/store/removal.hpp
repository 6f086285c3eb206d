// The end of a device folder that only programs used which do not need it later (CUDASIM_TEMPORARY).
#pragma once
#include "cudasim/store/folder.hpp"

namespace cudasim {

// Removes the folder where `process` is its only one and nothing in it is allocated any more. Whoever opens
// it at the same moment makes a new one.
void remove_if_last(const Folder& folder, u32 process);

}  // namespace cudasim
