// What a test says about the next kernels of the calling thread: a kernel does nothing by itself, and nobody
// knows which memory it uses unless told. Exported from the library beside the driver's functions.
#pragma once
#include <stddef.h>

extern "C" {

// The next kernel of this thread uses [address, address + bytes): it counts as pending work there until it
// has run, and 700 is its answer where the bytes are not mapped or may not be accessed by then. Adds up over
// calls.
__attribute__((visibility("default"))) void cudasim_launch_uses(unsigned long long address, size_t bytes);
// As above, and when it runs the kernel writes `value` to each byte: for late writes.
__attribute__((visibility("default"))) void cudasim_launch_writes(unsigned long long address, size_t bytes,
                                                                  unsigned char value);
// Virtual time that the next kernel of this thread takes.
__attribute__((visibility("default"))) void cudasim_launch_takes(unsigned long long nanoseconds);
}
