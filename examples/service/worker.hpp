// One process of the service: takes its memory at its start, then answers requests until there are no more.
#ifndef APPORTION_EXAMPLES_SERVICE_WORKER_HPP
#define APPORTION_EXAMPLES_SERVICE_WORKER_HPP

#include <cstddef>
#include <string>

// Attaches to `job` and reserves `bytes` of device memory, or throws. Then writes the line "ready" to
// standard output and, for each number that is a line of standard input, a line with its answer; returns at
// the end of the input. Throws where the device fails it.
void serve(const std::string& job, std::size_t bytes);

// What a worker answers to a number; its caller can check it.
unsigned long long expected_answer(unsigned number);

#endif
