#include "bench/traces/serving.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace apportion::bench {

unsigned Random::poisson(double mean) {
  const double limit = std::exp(-mean);
  unsigned count = 0;
  for (double product = real(); product > limit; product *= real())
    ++count;
  return count;
}

std::uint64_t Random::exponential(double mean) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(-mean * std::log(1 - real())));
}

namespace {

class Serving {
 public:
  explicit Serving(const ServingShape& shape) : shape_(shape), random_(shape.seed) {}

  Trace run() {
    load();
    for (unsigned step = 0; step < shape_.steps; ++step) {
      waiting_ += random_.poisson(shape_.arrivals);
      std::uint64_t tokens = running_.size();
      for (; waiting_ != 0 && running_.size() < shape_.requests_most; --waiting_) {
        Request request{random_.exponential(shape_.prompt_mean), random_.exponential(shape_.answer_mean), {}};
        tokens += request.tokens;
        grow(request);
        running_.push_back(std::move(request));
      }
      if (tokens != 0) compute(tokens);
      answer();
    }
    return maker_.take();
  }

 private:
  struct Request {
    std::uint64_t tokens;  // in its cache
    std::uint64_t left;    // to answer
    std::vector<std::uint32_t> pages;
  };

  void load() {
    const std::uint64_t h = shape_.hidden;
    maker_.allocate(2 * h * shape_.vocabulary);
    for (unsigned layer = 0; layer < shape_.layers; ++layer) {
      for (const std::uint64_t count : {3 * h * h, h * h, 2 * h * shape_.ffn, h * shape_.ffn, h, h})
        maker_.allocate(2 * count);
    }
    maker_.allocate(2 * h * shape_.vocabulary);
  }

  void grow(Request& request) {
    const std::uint64_t pages = (request.tokens + shape_.page_tokens - 1) / shape_.page_tokens;
    while (request.pages.size() < pages * shape_.page_parts)
      request.pages.push_back(maker_.allocate(shape_.page_bytes / shape_.page_parts));
  }

  void compute(std::uint64_t tokens) {
    const std::uint64_t state = 2 * tokens * shape_.hidden;
    std::uint32_t residual = maker_.allocate(state);
    for (unsigned layer = 0; layer < shape_.layers; ++layer) {
      const std::uint32_t qkv = maker_.allocate(3 * state);
      const std::uint32_t attended = maker_.allocate(state);
      maker_.free(qkv);
      const std::uint32_t wide = maker_.allocate(4 * tokens * shape_.ffn);
      maker_.free(attended);
      const std::uint32_t next = maker_.allocate(state);
      maker_.free(wide);
      maker_.free(residual);
      residual = next;
    }
    const std::uint32_t logits = maker_.allocate(4 * (running_.size() + 1) * shape_.vocabulary);
    maker_.free(residual);
    maker_.free(logits);
  }

  void answer() {
    for (Request& request : running_) {
      --request.left;
      if (request.left == 0) {
        maker_.free(request.pages);
      } else {
        ++request.tokens;
        grow(request);
      }
    }
    std::erase_if(running_, [](const Request& request) { return request.left == 0; });
  }

  const ServingShape shape_;
  Random random_;
  TraceMaker maker_;
  std::vector<Request> running_;
  unsigned waiting_ = 0;
};

}  // namespace

Trace serving_trace(const ServingShape& shape) {
  return Serving(shape).run();
}

std::string to_text(const ServingShape& shape) {
  std::ostringstream out;
  out << "layers=" << shape.layers << " hidden=" << shape.hidden << " ffn=" << shape.ffn
      << " vocabulary=" << shape.vocabulary << " arrivals=" << shape.arrivals
      << " prompt_mean=" << shape.prompt_mean << " answer_mean=" << shape.answer_mean
      << " requests_most=" << shape.requests_most << " page_tokens=" << shape.page_tokens
      << " page_bytes=" << shape.page_bytes << " page_parts=" << shape.page_parts << " steps=" << shape.steps
      << " seed=" << shape.seed;
  return out.str();
}

}  // namespace apportion::bench
