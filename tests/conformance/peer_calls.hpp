// The driver calls a helper process can be asked for, one function a request.
#pragma once

#include "peer_protocol.hpp"

#include <cuda.h>

namespace apportion::conformance {

// Makes the call that `request` names and fills `reply`; the result is the driver's own. `received_fd`: what
// came with the request, or -1. `send_fd`: set where an fd goes back; the caller sends and closes it.
CUresult answer(const Request& request, int received_fd, Reply* reply, int* send_fd);

}  // namespace apportion::conformance
