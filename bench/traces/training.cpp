#include "bench/traces/training.hpp"

#include <sstream>

namespace apportion::bench {
namespace {

class Training {
 public:
  explicit Training(const TrainingShape& shape) : shape_(shape), random_(shape.seed) {}

  Trace run() {
    load();
    for (unsigned i = 0; i < shape_.iterations; ++i) {
      for (unsigned micro = 0; micro < shape_.micro_steps; ++micro)
        pass();
      optimize();
    }
    return maker_.take();
  }

 private:
  using Blocks = std::vector<std::uint32_t>;
  struct Sizes {
    std::uint64_t layer;   // tokens x hidden
    std::uint64_t wide;    // tokens x ffn
    std::uint64_t scores;  // batch x heads x sequence x sequence
    std::uint64_t norm;    // a mean and a deviation by token
    std::uint64_t logits;
  };

  void load() {
    const std::uint64_t h = shape_.hidden;
    parameters_.push_back(h * shape_.vocabulary);
    for (unsigned layer = 0; layer < shape_.layers; ++layer) {
      for (const std::uint64_t count : {3 * h * h, h * h, h * shape_.ffn, h * shape_.ffn, h, h})
        parameters_.push_back(count);
    }
    for (const std::uint64_t count : parameters_)
      maker_.allocate(2 * count);
    if (shape_.lora_rank != 0) {
      parameters_.clear();
      for (unsigned i = 0; i < 4 * shape_.layers; ++i)
        parameters_.push_back(h * shape_.lora_rank);
      for (const std::uint64_t count : parameters_)
        maker_.allocate(4 * count);
    }
    for (const std::uint64_t count : parameters_) {
      maker_.allocate(4 * count);
      maker_.allocate(4 * count);
    }
    gradients_.assign(parameters_.size(), kNone);
  }

  Sizes draw() {
    const std::uint64_t steps = (shape_.sequence_max - shape_.sequence_min) / 8;
    const std::uint64_t sequence = shape_.sequence_min + 8 * random_.between(0, steps);
    const std::uint64_t tokens = sequence * shape_.batch;
    return {2 * tokens * shape_.hidden, 2 * tokens * shape_.ffn,
            2 * sequence * sequence * shape_.batch * shape_.heads, 8 * tokens,
            2 * tokens * shape_.vocabulary};
  }

  // A kernel's scratch memory: there for one call.
  void workspace(std::uint64_t most) { maker_.free(maker_.allocate(random_.between(most / 16 + 1, most))); }

  // What backward needs of a layer, beside its input.
  Blocks forward(const Sizes& sizes) {
    Blocks kept;
    const auto keep = [&](std::uint64_t bytes) { kept.push_back(maker_.allocate(bytes)); };
    keep(sizes.norm);
    keep(sizes.layer);  // normed
    keep(3 * sizes.layer);
    keep(sizes.scores);
    const std::uint32_t raw = maker_.allocate(sizes.scores);
    keep(sizes.scores);  // after softmax and dropout
    maker_.free(raw);
    keep(sizes.layer);
    workspace(8U << 20);
    const std::uint32_t projected = maker_.allocate(sizes.layer);
    keep(sizes.layer);
    maker_.free(projected);
    keep(sizes.norm);
    keep(sizes.layer);
    keep(sizes.wide);
    keep(sizes.wide);  // after the activation
    workspace(8U << 20);
    if (shape_.lora_rank != 0) keep(sizes.layer / shape_.hidden * shape_.lora_rank);
    return kept;
  }

  void gradient(std::size_t parameter) {
    const std::uint32_t made = maker_.allocate(4 * parameters_[parameter]);
    if (gradients_[parameter] == kNone) {
      gradients_[parameter] = made;
    } else {
      maker_.free(made);  // added to what earlier micro-steps left
    }
  }

  // The gradient of the layer's input, given the one of its output; frees both that and what was kept.
  std::uint32_t backward(const Sizes& sizes, Blocks& kept, std::uint32_t out, unsigned layer) {
    const std::uint32_t wide = maker_.allocate(sizes.wide);
    const std::uint32_t activated = maker_.allocate(sizes.wide);
    maker_.free(wide);
    std::uint32_t in = maker_.allocate(sizes.layer);
    maker_.free(activated);
    workspace(8U << 20);
    const std::uint32_t scores = maker_.allocate(sizes.scores);
    const std::uint32_t qkv = maker_.allocate(3 * sizes.layer);
    maker_.free(scores);
    const std::size_t each = shape_.lora_rank != 0 ? 4 : 6;
    const std::size_t first = (shape_.lora_rank != 0 ? 0 : 1) + layer * each;
    for (std::size_t i = each; i-- > 0;)
      gradient(first + i);
    const std::uint32_t sum = maker_.allocate(sizes.layer);
    maker_.free(qkv);
    maker_.free(in);
    maker_.free(out);
    for (std::size_t i = kept.size(); i-- > 0;)
      maker_.free(kept[i]);
    kept.clear();
    return sum;
  }

  void pass() {
    const Sizes sizes = draw();
    std::vector<Blocks> kept(shape_.layers);
    Blocks inputs;
    inputs.push_back(maker_.allocate(sizes.layer));
    for (unsigned layer = 0; layer < shape_.layers; ++layer) {
      kept[layer] = forward(sizes);
      inputs.push_back(maker_.allocate(sizes.layer));
      if (shape_.recompute) maker_.free(kept[layer]);
    }
    const std::uint32_t logits = maker_.allocate(sizes.logits);
    const std::uint32_t single = maker_.allocate(2 * sizes.logits);  // the loss in single precision
    maker_.free(single);
    std::uint32_t out = maker_.allocate(sizes.layer);
    if (shape_.lora_rank == 0) gradient(0);
    maker_.free(logits);
    for (unsigned layer = shape_.layers; layer-- > 0;) {
      if (shape_.recompute) kept[layer] = forward(sizes);
      out = backward(sizes, kept[layer], out, layer);
      maker_.free(inputs.back());
      inputs.pop_back();
    }
    maker_.free(inputs);
    maker_.free(out);
  }

  void optimize() {
    for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
      if (gradients_[parameter] == kNone) continue;
      const std::uint32_t update = maker_.allocate(4 * parameters_[parameter]);
      maker_.free(gradients_[parameter]);
      gradients_[parameter] = kNone;
      maker_.free(update);
    }
  }

  static constexpr std::uint32_t kNone = ~0U;
  const TrainingShape shape_;
  Random random_;
  TraceMaker maker_;
  std::vector<std::uint64_t> parameters_;  // counts, of what is trained
  std::vector<std::uint32_t> gradients_;
};

}  // namespace

Trace training_trace(const TrainingShape& shape) {
  return Training(shape).run();
}

std::string to_text(const TrainingShape& shape) {
  std::ostringstream out;
  out << "layers=" << shape.layers << " hidden=" << shape.hidden << " ffn=" << shape.ffn
      << " vocabulary=" << shape.vocabulary << " heads=" << shape.heads << " batch=" << shape.batch
      << " sequence=" << shape.sequence_min << ".." << shape.sequence_max << " lora_rank=" << shape.lora_rank
      << " recompute=" << shape.recompute << " micro_steps=" << shape.micro_steps
      << " iterations=" << shape.iterations << " seed=" << shape.seed;
  return out.str();
}

}  // namespace apportion::bench
