// A broker in one thread, for tests of the client: it speaks the wire, leases real chunks of the simulated
// device, and misbehaves where a test wants it to. It has no policy but a limit.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cudasim/control.hpp"
#include "gpu/chunk.hpp"
#include "gpu/device.hpp"
#include "shm/channel.hpp"
#include "shm/job_page.hpp"
#include "shm/report_page.hpp"
#include "shm/wire.hpp"
#include "tests/unit/libclient/fake_slabs.hpp"

namespace apportion::testing {

// One simulated device of 1 GiB for the whole test program.
struct SimulatedDevice {
  SimulatedDevice();
  [[nodiscard]] static SimulatedDevice& instance();

  std::unique_ptr<cudasim::TemporaryFolder> folder;
  std::unique_ptr<Device> device;
};

class FakeBroker {
 public:
  static constexpr Bytes kChunk{2 << 20};

  enum class Memory { chunks, slabs };
  explicit FakeBroker(std::uint32_t limit_chunks = 64, Memory memory = Memory::chunks);
  ~FakeBroker();
  FakeBroker(const FakeBroker&) = delete;
  FakeBroker& operator=(const FakeBroker&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // What it saw.
  struct Seen {
    int hellos = 0;
    int requests = 0;
    int acked = 0;   // chunks
    int nacked = 0;  // chunks
    Errc nack_reason{};
    int released = 0;  // chunks
    int strange = 0;   // ids released that the session did not have
    std::vector<wire::Reclaimed> reclaimed;
    int detaches = 0;
    int hang_ups = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> asked;  // min, want
    std::string job, label;
    std::uint32_t hello_flags = 0;
  };
  [[nodiscard]] Seen seen();
  // Chunks that some session has.
  [[nodiscard]] std::size_t leased();
  // The same in bytes of slabs.
  [[nodiscard]] Bytes leased_slabs();
  // F52: their owner dies, and their holders are told.
  void lose_slabs();
  // Until `done` says yes, within five seconds.
  [[nodiscard]] bool wait(const std::function<bool(const Seen&)>& done);
  // A copy of the session's report page as the broker reads it. The session must be attached.
  [[nodiscard]] ReportFigures report();

  // Asks the session for memory, unasked. The session must be attached.
  void recall(Bytes bytes);

  std::atomic<std::uint64_t> idle_return_ms{30'000};  // as WELCOME says it

  // What it does wrong.
  std::atomic<std::uint32_t> part_chunks{128};  // chunks in one GRANT message
  std::atomic<bool> mute{false};                // does not answer REQUEST
  std::atomic<bool> hang_up_on_request{false};
  std::atomic<bool> forget_fds{false};       // grants without descriptors
  std::atomic<bool> keep_fds{false};         // closes what it sent only at the next message
  std::atomic<bool> strange_fds{false};      // grants with a memfd for each chunk
  std::atomic<bool> old_grant_first{false};  // a GRANT of an older epoch before the right one
  std::atomic<bool> refuse_hello{false};
  std::atomic<bool> wrong_place{false};    // grants slabs where there is none
  std::atomic<bool> wrong_size{false};     // and of another size than was asked for
  std::atomic<bool> reclaim_first{false};  // a RECLAIM of 4 MiB before the answer
  std::atomic<std::uint16_t> welcome_major{wire::kMajor};

 private:
  struct Session {
    Fd socket;
    std::map<std::uint64_t, Chunk> leases;
    std::map<std::uint64_t, Bytes> slabs;
    std::unique_ptr<ReportPage> report;
    std::vector<Fd> kept;
  };

  void serve();
  // False: the connection is over.
  [[nodiscard]] bool serve(Session& session);
  [[nodiscard]] bool answer(Session& session, const wire::Message& message);
  void welcome(Session& session, const wire::Hello& hello);
  void grant(Session& session, const wire::Request& request);
  void grant_slab(Session& session, const wire::Request& request);
  [[nodiscard]] Bytes held_slabs() const;
  // Chunks or slabs that were; how many.
  std::size_t take_back(Session& session, std::uint64_t id);
  void send_grant(Session& session, std::uint64_t request_id, std::uint64_t epoch, std::uint32_t part,
                  std::uint32_t parts, std::vector<std::uint64_t> ids);
  void send_recall(Session& session, Bytes bytes);
  void publish();

  static constexpr std::uint64_t kEpoch = 7;

  const Device& device_;
  ChunkMaker maker_;
  const std::uint32_t limit_chunks_;
  const Memory memory_;
  std::string folder_;
  std::string path_;
  Fd listening_;
  Fd stop_;
  std::unique_ptr<JobPageWriter> job_;
  FakeSlabs slabs_;
  std::mutex mutex_;  // of what follows
  Seen seen_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::uint64_t next_id_ = 1;
  std::thread thread_;
};

// How many descriptors this process has open, and how many lines its memory map has.
[[nodiscard]] std::size_t open_fds();
[[nodiscard]] std::size_t mappings();

}  // namespace apportion::testing
