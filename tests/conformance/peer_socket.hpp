// Datagrams between a helper process and its test: fixed structs, and at most one fd.
#pragma once

#include "peer_protocol.hpp"

namespace apportion::conformance {

// False where the socket is closed or refuses; errno says why. Never blocks.
bool send_to(int socket, const Reply& reply, int fd);
// Waits for the next request; `fd` is what came with it, or -1. False where the test is gone.
bool receive_from(int socket, Request* request, int* fd);

}  // namespace apportion::conformance
