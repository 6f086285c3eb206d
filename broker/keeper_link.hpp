// The broker's end of the private socket to the keeper.
//
// Promises: one message with descriptors is in flight at a time (rule 40: a non-root sender's descriptors in
// flight are limited, for all its sockets together); each put and del is answered once. Pings are answered at
// once, by the strand: a strand that is stuck answers none, which is what the keeper wants to know. Where the
// keeper is gone (F51), nothing can be kept and everything is dropped already: puts and dels are answered as
// done, so that the living broker serves on. Never: blocks after start-up.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "broker/ids.hpp"
#include "broker/server_loop.hpp"
#include "shm/bytes.hpp"
#include "shm/channel.hpp"
#include "shm/fd.hpp"
#include "shm/wire_keeper.hpp"

namespace apportion {

class KeeperLink {
 public:
  // What a predecessor left with the keeper; all empty at a first start.
  struct Inheritance {
    Fd listening_socket;
    Fd device_lock;
    Fd journal;
    Bytes journal_bytes;
    std::size_t chunks = 0;  // their descriptors stay with the keeper
  };

  KeeperLink(Loop& loop, Fd channel);

  // Blocking, before watch(): takes over what is kept, or hands over one thing. Errors: timed_out,
  // disconnected, protocol; system where the keeper is out of descriptors.
  [[nodiscard]] Result<Inheritance> take();
  [[nodiscard]] Status put_now(wire::KeptKind kind, Bytes bytes, int fd);

  // From here on the loop reads it. `lost`: the keeper is gone, called once. `pinged`: a ping was answered.
  // Errc::system where there is no room to watch it.
  [[nodiscard]] Status watch(std::function<void(std::string why)> lost, std::function<void()> pinged);
  void ready();

  using Answer = std::function<void(Status)>;
  void put(std::span<const ChunkId> ids, std::vector<Fd> fds, Answer answer);
  void del(std::span<const ChunkId> ids, Answer answer);

 private:
  struct Outgoing {
    std::uint64_t request = 0;
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
    Answer answer;
  };
  void enqueue(std::uint64_t request, std::span<const std::byte> bytes, std::vector<Fd> fds, Answer answer);
  void send_next();
  void read();
  void give_up(const std::string& why);
  [[nodiscard]] Status wait_for_ack(std::uint64_t request, Inheritance* into);

  Loop& loop_;
  Fd channel_;
  std::unique_ptr<Loop::Watch> readable_;
  std::unique_ptr<Loop::Watch> writable_;
  std::function<void(std::string)> lost_;
  std::function<void()> pinged_;
  std::deque<Outgoing> queue_;
  bool in_flight_ = false;  // the front of queue_ is sent, its answer is not here
  std::uint64_t next_request_ = 1;
};

}  // namespace apportion
