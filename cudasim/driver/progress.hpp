// Host functions run although nobody asks: a program may wait for one without calling the driver again, and
// on a device it would not wait for ever. One thread per process, started with the first host function; it
// lets kPatienceMs of real time pass for somebody to synchronise, then runs the stream up to the function.
// Other work is never hurried.
#pragma once
#include "cudasim/driver/work.hpp"

namespace cudasim {

inline constexpr int kPatienceMs = 50;

// `point` is a host function's.
void run_eventually(const Point& point);

}  // namespace cudasim
