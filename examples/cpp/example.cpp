// A C++ program that gets its device memory from Apportion: sessions and blocks that give themselves back.
//
//   example_cpp [JOB]     the job to join; without it the environment's APPORTION_JOB, else the config's
//                         [jobs.default]
//
// It sends data through the device in batches on a stream. It starts with a batch that is too large, as a
// program tuned on a larger GPU would, and halves it until the job's quota has room.
#include <apportion/apportion.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "../common/gpu.hpp"

namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

CUdeviceptr address(const apportion::Block& block) {
  return reinterpret_cast<CUdeviceptr>(block.data());
}

// A stream that the library is told about before it goes: a new stream may get the same handle.
class Stream {
 public:
  Stream(apportion::Session& session, const Gpu& gpu) : session_(session), gpu_(gpu) {
    gpu.require(gpu->stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ~Stream() {
    apportion_stream_gone(session_.get(), stream_);
    gpu_->stream_destroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] CUstream get() const { return stream_; }

 private:
  apportion::Session& session_;
  const Gpu& gpu_;
  CUstream stream_ = nullptr;
};

struct Buffers {
  apportion::Block input;
  apportion::Block output;
};

// Two equal blocks, as large as the quota has room for. A refusal changes nothing, so trying is free.
Buffers allocate_batch(apportion::Session& session, CUstream stream, std::size_t wish) {
  for (std::size_t bytes = wish;; bytes /= 2) {
    try {
      Buffers buffers;
      buffers.input = session.allocate(bytes, stream);
      buffers.output = session.allocate(bytes, stream);
      std::printf("batch of %.2f GiB\n", static_cast<double>(bytes) / kGib);
      return buffers;  // on a failure of the second, the first has given itself back
    } catch (const apportion::Failure& failure) {
      if (failure.status() != APPORTION_QUOTA || bytes < 1024 * 1024) throw;
      std::printf("refused: %s\n", failure.what());
    }
  }
}

// Sends `data` in, copies it on the device, and brings it back; all on one stream.
std::vector<std::uint32_t> round_trip(const Gpu& gpu, const Stream& stream, const Buffers& buffers,
                                      const std::vector<std::uint32_t>& data) {
  std::vector<std::uint32_t> back(data.size());
  const std::size_t bytes = data.size() * sizeof data[0];
  const CUdeviceptr input = address(buffers.input);
  const CUdeviceptr output = address(buffers.output) + buffers.output.size() - bytes;  // the block's very end
  gpu.require(gpu->copy_to_device_async(input, data.data(), bytes, stream.get()), "cuMemcpyHtoDAsync");
  gpu.require(gpu->copy_on_device_async(output, input, bytes, stream.get()), "cuMemcpyDtoDAsync");
  gpu.require(gpu->copy_to_host_async(back.data(), output, bytes, stream.get()), "cuMemcpyDtoHAsync");
  gpu.require(gpu->stream_synchronize(stream.get()), "cuStreamSynchronize");
  return back;
}

int run(const std::string& job) {
  apportion::Session::Options options;
  options.job = job;
  options.label = "example in C++";
  apportion::Session session(options);
  const apportion_info info = session.info();
  std::printf("job %s on %s%s: told %.2f GiB, of it free %.2f GiB\n", info.job, info.device_name,
              info.simulated != 0 ? " (simulated)" : "", static_cast<double>(info.total_bytes) / kGib,
              static_cast<double>(info.free_bytes) / kGib);

  bool same = true;
  {
    const Gpu gpu(info.device_uuid);
    const Stream stream(session, gpu);
    const Buffers buffers = allocate_batch(session, stream.get(), info.total_bytes);
    std::vector<std::uint32_t> data(256 * 1024);
    for (std::uint32_t batch = 0; batch < 4; ++batch) {
      for (std::uint32_t i = 0; i < data.size(); ++i)
        data[i] = batch ^ (i * 2654435761U);
      same = same && round_trip(gpu, stream, buffers, data) == data;
    }
  }  // blocks, stream and context are gone, in this order
  std::printf("four batches: %s\n", same ? "as sent" : "not what was sent");
  std::printf("gave back %.2f GiB\n", static_cast<double>(session.trim_to(0)) / kGib);
  session.detach();  // the destructor would do it too, without saying what went wrong
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "example_cpp: %s\n", failure.what());
    return 1;
  }
}
