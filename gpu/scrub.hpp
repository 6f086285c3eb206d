// Overwriting chunks with zeros, through the context that is current on this thread.
//
// Promises: when it answers Done, the device has written every byte and nothing is mapped any more (rules 18
// and 31: synchronise, then unmap). On an error the contents are unknown, and `left_mapped` says whether the
// driver would not unmap them. Never: makes a context. Not for threads of the user's: it waits for the GPU.
#pragma once

#include <span>

#include "gpu/chunk.hpp"

namespace apportion {

// Errors: out_of_memory (no addresses), driver; after driver the context may be broken for good (rule 19).
[[nodiscard]] Status scrub(const Device& device, std::span<const Chunk* const> chunks, bool& left_mapped);

}  // namespace apportion
