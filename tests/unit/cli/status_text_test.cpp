#include "cli/status_text.hpp"

#include "tests/support/catch.hpp"
#include "tests/unit/cli/hand_made.hpp"

using namespace apportion;
using namespace apportion::testing;

TEST_CASE("status text: the whole answer, line for line") {
  CHECK(status_text(hand_made_answer()) == R"(GPU-0  Some GPU, 80 GiB
broker   pid 101, keeper 100, up 61 s, /run/apportion/GPU-0/broker.sock
pool     64 GiB = charged 20 GiB + in transit 1 GiB + free 43 GiB; chunks of 32 MiB
outside  overhead 15 GiB + helper context 512 MiB, of it in use by contexts 512 MiB; foreign 2 GiB

in GiB:
job      promised  in force  covered  limit  charged   used  idle  in transit  told free  processes
trainer     16.00     16.00     8.00  32.00    20.00  13.00  4.00        2.00       0.00          2
quiet        0.00      0.00     0.00  64.00     0.00   0.00  0.00        0.00      64.00          0

process  user        job      state          told  used  idle  in transit  overhead  foreign  program
201      4000000001  trainer  attached      16.00  8.00  4.00        0.00      0.50           python
?        4000000001  trainer  zombie        16.00  0.00  0.00        8.00      0.00           gone
301      4000000002  -        foreign                                                   1.00  stranger
-        -           -        foreign_rest                                              1.00
)");
}

TEST_CASE("status text: a closed broker says why, and a simulated device is named as one") {
  StatusAnswer answer = hand_made_answer();
  answer.broker.note.set("recovery is not built yet");
  answer.broker.flags = wire::BrokerRow::kSimulated;
  const std::string text = status_text(answer);
  CHECK(text.find("\nclosed   recovery is not built yet\n") != std::string::npos);
  CHECK(text.find("Some GPU, 80 GiB (simulated device)\n") != std::string::npos);
}

TEST_CASE("status text: a broker that lost its keeper says which process to stop") {
  StatusAnswer answer = hand_made_answer();
  answer.broker.keeper_pid = 0;
  CHECK(status_text(answer).find(
            "\nkeeper   gone; when the jobs are done, stop apportiond (kill -TERM 101) and "
            "start it again") != std::string::npos);
}

TEST_CASE("status text: a device that nobody uses has no table of processes") {
  StatusAnswer answer = hand_made_answer();
  answer.sessions.clear();
  answer.holders.clear();
  const std::string text = status_text(answer);
  CHECK(text.find("\nno process holds memory\n") != std::string::npos);
  CHECK(text.find("program") == std::string::npos);
}
