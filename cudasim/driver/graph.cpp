#include "cudasim/driver/graph.hpp"

#include <mutex>
#include <set>
#include <unordered_map>

#include "cudasim/driver/submit.hpp"

namespace cudasim {
namespace {

// Graphs and executable graphs by handle; a graph that is launched can be destroyed before it has run.
class Graphs {
 public:
  static Graphs& get() {
    static auto* graphs = new Graphs;
    return *graphs;
  }
  template <typename Handle>
  Handle add(std::shared_ptr<Graph> graph) {
    const std::lock_guard lock(mutex_);
    const void* key = graph.get();
    graphs_.emplace(key, std::move(graph));
    return static_cast<Handle>(const_cast<void*>(key));
  }
  std::shared_ptr<Graph> find(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = graphs_.find(handle);
    return found == graphs_.end() ? nullptr : found->second;
  }
  CUresult remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    return graphs_.erase(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Graph>> graphs_;
};

CUgraph as_graph(void* handle) {
  return static_cast<CUgraph>(handle);
}

CUresult create(CUgraph* out, unsigned flags) {
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = register_graph(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

CUresult count_nodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  const auto graph = Graphs::get().find(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // nodes have no handles of their own here
  *count = graph->nodes.size();
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph handle) {
  const auto graph = Graphs::get().find(handle);
  if (graph == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<CUgraphExec>(Graphs::get().add<void*>(std::make_shared<Graph>(*graph)));
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = instantiate(out, handle);
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult launch(CUgraphExec handle, CUstream stream, Default meaning) {
  const auto graph = Graphs::get().find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Work& node : graph->nodes) {
    const CUresult result = submit(stream, meaning, node);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult upload(CUgraphExec handle, CUstream stream, Default meaning) {
  if (Graphs::get().find(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, meaning, {.what = "cuGraphUpload"});
}

}  // namespace

CUgraph register_graph(std::shared_ptr<Graph> graph) {
  return as_graph(Graphs::get().add<void*>(std::move(graph)));
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* graph, unsigned flags) {
  CUDASIM_CALL(cuGraphCreate, Needs::kInit, flags);
  return call.done(create(graph, flags));
}
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  CUDASIM_CALL(cuGraphDestroy, Needs::kInit, graph);
  return call.done(Graphs::get().remove(graph));
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec graph) {
  CUDASIM_CALL(cuGraphExecDestroy, Needs::kInit, graph);
  return call.done(Graphs::get().remove(graph));
}
CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  CUDASIM_CALL(cuGraphGetNodes, Needs::kInit, graph);
  return call.done(count_nodes(graph, nodes, count));
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) {
  CUDASIM_CALL(cuGraphInstantiate, Needs::kContext, graph);
  return call.done(instantiate(out, graph));
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, size_t) {
  CUDASIM_CALL(cuGraphInstantiate_v2, Needs::kContext, graph);
  return call.done(instantiate(out, graph));
}
CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  CUDASIM_CALL(cuGraphInstantiateWithFlags, Needs::kContext, graph, flags);
  return call.done(instantiate(out, graph));
}

CUDASIM_BOTH(cuGraphInstantiateWithParams, _ptsz,
             (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters), (graph),
             instantiate(out, graph, parameters))
CUDASIM_BOTH(cuGraphUpload, _ptsz, (CUgraphExec graph, CUstream stream), (graph, stream),
             upload(graph, stream, meaning))
CUDASIM_BOTH(cuGraphLaunch, _ptsz, (CUgraphExec graph, CUstream stream), (graph, stream),
             launch(graph, stream, meaning))

}  // extern "C"
