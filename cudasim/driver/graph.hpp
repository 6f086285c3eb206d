// Graphs: what a capture recorded, in the order it was recorded. A launch gives all of it to one stream
// again.
//
// The order of capture is an order that satisfies every dependency, so no edges are kept. Handles given out
// are checked against the graphs that exist. Thread-safe.
#pragma once
#include "cudasim/driver/work.hpp"

namespace cudasim {

struct Graph {
  std::vector<Work> nodes;
};

// A new handle for `graph`.
CUgraph register_graph(std::shared_ptr<Graph> graph);

}  // namespace cudasim
