// The shell around the core: takes events one at a time, carries out the actions they lead to.
//
// Owns: core, pool, publisher, server, keeper link, helper link; one strand (server_loop.hpp). Promises:
// actions are carried out in the order the core gave them, and an action's answer comes back as an event of
// its own. Never: changes the book. It knows sockets, driver threads and clocks, so that the core need not.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "broker/core.hpp"
#include "broker/helper_link.hpp"
#include "broker/journal.hpp"
#include "broker/keeper_link.hpp"
#include "broker/pool.hpp"
#include "broker/publisher.hpp"
#include "broker/server.hpp"
#include "broker/server_loop.hpp"
#include "broker/status_report.hpp"
#include "config/config.hpp"
#include "config/load.hpp"

namespace apportion {

// All that start-up (start.hpp) has opened and checked.
struct ShellParts {
  Config config;
  LoadReport load;
  CoreSetup setup;
  StatusFacts facts;
  std::string driver_path;  // told to clients of a simulated device
  std::string cudasim_dir;
  std::string helper_device;  // as the helper opens it
  HelperSetup helper = {};
};

class Shell final : private Server::Sink {
 public:
  // The references outlive the shell.
  Shell(Loop& loop, ShellParts parts, const Device& device, const DeviceMonitor& monitor, Journal& journal,
        KeeperLink& keeper, int listening_socket);
  ~Shell() override;

  // Makes the pages. Errc::system.
  [[nodiscard]] Status open();
  // Fills the pool, then serves until told to stop. The exit code.
  [[nodiscard]] int run();
  [[nodiscard]] bool was_ready() const { return core_.ready(); }

 private:
  void event(const Event& event) override;
  void status_wanted(ConnectionId from, const wire::StatusRequest& request) override;

  void perform(const Actions& actions);
  void work_off();
  void carry_out(const Action& action);
  void on(const actions::Welcome& action);
  void on(const actions::RefuseHello& action);
  void on(const actions::MakeChunk& action);
  void on(const actions::UnmakeChunk& action);
  void on(const actions::ScrubChunks& action);
  void on(const actions::MakeSlab& action);
  void on(const actions::FreeSlab& action);
  void on(const actions::SlabsLost& action);
  void on(const actions::KeeperPut& action);
  void on(const actions::KeeperDel& action);
  void on(const actions::SendGrant& action);
  void on(const actions::SendRefusal& action);
  void on(const actions::SendReleased& action);
  void on(const actions::SendReclaim& action);
  void on(const actions::EndSession& action);
  void on(const actions::PublishJob& action);
  void on(const actions::PublishLedger& action);
  void on(const actions::AskDeviceRoom& action);
  void on(const actions::Ready& action);
  void on(const actions::Fatal& action);
  void on(const actions::Log& action);

  [[nodiscard]] HelperLink::Answers helper_answers();
  void forget_slab(ChunkId id);
  void send_slabs(const actions::SendGrant& grant);
  void withdraw(const actions::Welcome& welcome);
  void unmake_unkept(const std::vector<ChunkId>& ids, const Error& why);
  void refuse_hello(ClientConnection& connection, const Error& error);
  void watch_predecessors();
  void read_room();
  void room_read(const Pool::Room& room);
  void answer_askers();
  void keeper_lost(const std::string& why);
  void fatal(const Error& error);
  void keep_ticking();

  Loop& loop_;
  ShellParts parts_;
  Journal& journal_;
  KeeperLink& keeper_;
  Core core_;
  std::unique_ptr<Publisher> publisher_;
  Server server_;
  Pool pool_;
  HelperLink helper_;
  std::unordered_map<ChunkId, IpcHandle> slab_handles_;  // of each that the helper has
  // Dead helpers that had slabs, as long as the device names them: what it names them for is the pool's.
  std::set<pid_t> dead_helpers_;

  std::deque<Event> events_;
  bool handling_ = false;
  bool reading_room_ = false;
  bool room_unreadable_ = false;  // said once
  struct Asker {
    ConnectionId from;
    wire::StatusRequest request;
  };
  std::vector<Asker> askers_;  // of STATUS, waiting for a reading
  std::unique_ptr<Loop::Watch> tick_;
  std::chrono::milliseconds tick_delay_{};
  bool hurry_ = false;  // something happened that may matter to what the ticks wait for
  std::int64_t started_ns_ = 0;
  int exit_code_ = 0;
};

}  // namespace apportion
