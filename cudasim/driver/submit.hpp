// How exported functions give work to a stream and wait for it: handle, capture, host functions and order in
// one place, and the macro that defines a function together with its per-thread form.
#pragma once
#include "cudasim/driver/call.hpp"
#include "cudasim/driver/capture.hpp"
#include "cudasim/driver/streams.hpp"

namespace cudasim {

// Gives work to a stream; returns at once.
CUresult submit(CUstream handle, Default meaning, Work work);
// Gives work to the default stream and waits for it; the code of the work itself where it has one.
CUresult submit_and_wait(Default meaning, Work work);

// Waits for everything in a stream. Ends what a synchronisation point ends: pools give back what they cache.
CUresult synchronise_stream(CUstream handle, Default meaning);
CUresult synchronise_context(Context& context);

// Defines `symbol` and `symbol` with `suffix`. `expression` may use `meaning`.
#define CUDASIM_BOTH(symbol, suffix, parameters, arguments, expression)                   \
  CUresult CUDAAPI symbol parameters {                                                    \
    constexpr auto meaning = ::cudasim::Default::kLegacy;                                 \
    (void)meaning;                                                                        \
    CUDASIM_CALL(symbol, ::cudasim::Needs::kContext CUDASIM_ARGUMENTS arguments);         \
    return call.done(expression);                                                         \
  }                                                                                       \
  CUresult CUDAAPI symbol##suffix parameters {                                            \
    constexpr auto meaning = ::cudasim::Default::kPerThread;                              \
    (void)meaning;                                                                        \
    CUDASIM_CALL(symbol##suffix, ::cudasim::Needs::kContext CUDASIM_ARGUMENTS arguments); \
    return call.done(expression);                                                         \
  }
#define CUDASIM_ARGUMENTS(...) __VA_OPT__(, ) __VA_ARGS__

}  // namespace cudasim
