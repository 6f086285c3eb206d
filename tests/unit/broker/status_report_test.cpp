#include "broker/status_report.hpp"

#include <unistd.h>

#include "tests/support/catch.hpp"

using namespace apportion;

TEST_CASE("status: the device's processes are the pool, contexts of sessions, foreign, and a rest") {
  LedgerSnapshot snapshot;
  SessionRecord session;
  session.id = 5;
  session.pid = 777;
  snapshot.sessions.push_back(session);
  Pool::Room room{DeviceMemory{8_GiB, 2_GiB, 6_GiB, 0_B},
                  {{::getpid(), 4_GiB}, {777, 300_MiB}, {888, 1_GiB}, {999, 200_MiB}},
                  {{0, "apportiond"}, {1000, "python"}, {}, {0, "apportiond-help"}},
                  0};
  const std::vector<wire::HolderRow> rows = holder_rows(snapshot, room, 4_GiB, 999);
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].kind == static_cast<std::uint32_t>(wire::HolderKind::context));
  CHECK(rows[0].session_id == 5);
  CHECK(rows[0].uid == 1000);
  CHECK(rows[0].name.view() == "python");
  CHECK(rows[1].kind == static_cast<std::uint32_t>(wire::HolderKind::foreign));
  CHECK(rows[1].uid == kUnknownUid);  // gone or hidden: not root
  CHECK(rows[2].kind == static_cast<std::uint32_t>(wire::HolderKind::helper));
  CHECK(rows[3].kind == static_cast<std::uint32_t>(wire::HolderKind::foreign_rest));
  CHECK(rows[3].bytes == (6_GiB - 4_GiB - 300_MiB - 1_GiB - 200_MiB).value);
}

TEST_CASE("status: names and users of processes come from /proc, and are unknown for who is not there") {
  CHECK(label_of(::getpid()).uid == ::geteuid());
  CHECK_FALSE(label_of(::getpid()).name.empty());
  CHECK(label_of(0x7fffff00).uid == kUnknownUid);
  CHECK(label_of(0x7fffff00).name.empty());
}

TEST_CASE("status: a pool that cannot be made names who has the device, largest first") {
  Pool::Room room{DeviceMemory{8_GiB, 2_GiB, 6_GiB, 0_B},
                  {{::getpid(), 4_GiB}, {777, 300_MiB}, {888, 1_GiB}},
                  {{0, "apportiond"}, {1000, "python"}, {}},
                  0};
  CHECK(others_on(room) ==
        "; on the device now: 1 GiB of a process (pid 888), 300 MiB of python (pid 777, uid 1000)");
  room.processes.resize(1);
  CHECK(others_on(room).empty());
}
