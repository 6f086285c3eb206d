// The first thing that main() does in every program of ours.
//
// Promises: descriptors 0, 1 and 2 are open afterwards, so that no socket, pipe or driver file can get their
// numbers: a log line would go into a socket, or a stream set up for a child would replace it. What stands in
// for a closed stream fails as a closed one does. Never: touches a stream that is open.
#pragma once

namespace apportion {

void fill_closed_streams();

}  // namespace apportion
