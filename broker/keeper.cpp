#include "broker/keeper.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>

#include "broker/kept_fds.hpp"
#include "broker/log.hpp"
#include "shm/channel.hpp"
#include "shm/fault_point.hpp"
#include "shm/peer.hpp"
#include "shm/wire.hpp"

namespace apportion {
namespace {

constexpr std::chrono::seconds kHandOverPatience{10};
constexpr int kStopPatienceTicks = 10;  // after SIGTERM, then SIGKILL
constexpr int kMaxBackOffTicks = 30;
constexpr int kHealthyTicks = 30;  // a broker that served that long starts the back-off anew

// One descriptor per chunk is held here for good: take all that the hard limit allows.
void raise_fd_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class Keeper {
 public:
  explicit Keeper(const std::vector<std::string>& argv) : argv_(argv) {}

  int run() {
    if (Status opened = open(); !opened.ok()) return fail(opened.error().message);
    if (Status started = start_broker(); !started.ok()) return fail(started.error().message);
    while (!exit_code_)
      wait_and_handle();
    // A broker that was told to stop removes its socket's file; one that could not left it to us.
    if (stopping_ticks_ > 0 && !clean_end_) kept_.remove_socket_file();
    return *exit_code_;
  }

 private:
  static int fail(const std::string& why) {
    std::fprintf(stderr, "apportiond: the keeper cannot start: %s\n", why.c_str());
    return 1;
  }

  Status open() {
    sigset_t handled;
    sigemptyset(&handled);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP})
      sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &inherited_mask_);
    signals_ = Fd(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return system_error("signalfd", errno);
    ticks_ = Fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!ticks_) return system_error("timerfd", errno);
    const itimerspec each_second{{1, 0}, {1, 0}};
    timerfd_settime(ticks_.get(), 0, &each_second, nullptr);
    return Done{};
  }

  Status start_broker() {
    Result<channel::Pair> pair = channel::make_pair();
    if (!pair.ok()) return pair.error();
    const pid_t pid = fork();
    if (pid < 0) return system_error("fork", errno);
    if (pid == 0) become_broker(pair->second.get());
    Result<Fd> pidfd = open_pidfd(pid);
    if (!pidfd.ok()) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      return pidfd.error();
    }
    broker_ = pid;
    pidfd_ = *std::move(pidfd);
    channel_ = std::move(pair->first);
    missed_ = 0;
    ready_ticks_ = 0;
    ready_ = false;
    return Done{};
  }

  [[noreturn]] void become_broker(int channel) {
    sigprocmask(SIG_SETMASK, &inherited_mask_, nullptr);
    std::vector<std::string> words = argv_;
    const int inherited = dup(channel);  // without close-on-exec, unlike everything else here
    words.insert(words.end(),
                 {kBrokerFlag, std::to_string(inherited), kRestartsFlag, std::to_string(restarts_)});
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    std::fprintf(stderr, "apportiond: cannot start the broker: %s\n", std::strerror(errno));
    _exit(127);
  }

  void wait_and_handle() {
    std::array<pollfd, 4> polled{{{signals_.get(), POLLIN, 0},
                                  {ticks_.get(), POLLIN, 0},
                                  {channel_.get(), POLLIN, 0},
                                  {pidfd_.get(), POLLIN, 0}}};
    if (poll(polled.data(), polled.size(), -1) < 0) return;
    if (polled[0].revents != 0) handle_signal();
    if (polled[2].revents != 0) handle_messages();
    if (polled[3].revents != 0) return handle_death();
    if (polled[1].revents != 0) handle_tick();
  }

  void handle_signal() {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
    if (info.ssi_signo == SIGHUP) {
      // A reload is the broker's business.
      if (broker_ > 0) kill(broker_, SIGHUP);
      return;
    }
    if (stopping_ticks_ == 0) stopping_ticks_ = 1;  // said twice, it waits no longer
    if (broker_ > 0) {
      kill(broker_, SIGTERM);
    } else {
      exit_code_ = 0;
    }
  }

  void handle_tick() {
    std::uint64_t expirations = 0;
    if (read(ticks_.get(), &expirations, sizeof expirations) != sizeof expirations) return;
    if (broker_ <= 0) {
      if (--back_off_ticks_ <= 0) restart();
      return;
    }
    if (stopping_ticks_ > 0 && ++stopping_ticks_ > kStopPatienceTicks) kill(broker_, SIGKILL);
    // F45: a broker that does not answer is as good as dead, and its clients wait. While it starts it is busy
    // with the driver and answers nobody; a start that never ends is for a person to see.
    if (!ready_ || stopping_ticks_ > 0) return;
    if (++ready_ticks_ == kHealthyTicks) back_off_ = 1;
    if (missed_ >= kMissedPings) {
      log::error(
          "lost",
          {{"what", "broker"}, {"pid", std::to_string(broker_)}, {"why", "silent for 5 pings: killed"}});
      kill(broker_, SIGKILL);
      return;
    }
    ++missed_;
    // A full socket is silence too: the ping counts as missed.
    (void)channel::try_send(channel_.get(), wire::bytes_of(wire::make<wire::Ping>(0, 0)));
  }

  void handle_messages() {
    channel::Datagram datagram;
    while (channel_) {
      Result<bool> got = channel::try_receive(channel_.get(), datagram);
      if (!got.ok()) {
        channel_.reset();  // the pidfd tells the rest
        return;
      }
      if (!*got) return;
      Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::keeper_pair);
      if (!message.ok()) {
        log::error("refused", {{"what", "message of the broker"}, {"why", message.error().message}});
        continue;
      }
      handle(*message, datagram);
    }
  }

  void handle(const wire::Message& message, channel::Datagram& datagram) {
    const std::uint64_t request = wire::header_of(message).request_id;
    if (const auto* put = std::get_if<wire::Put>(&message)) {
      const Status complete = channel::require_fds(datagram, wire::fds_of(message));
      if (complete.ok()) kept_.put(*put, std::move(datagram.fds));
      APPORTION_FAULT_POINT("keeper.after_put");
      acknowledge(request, complete.ok() ? put->part.count : 0, complete);
    } else if (const auto* del = std::get_if<wire::Del>(&message)) {
      const std::uint64_t dropped = kept_.del(*del);
      APPORTION_FAULT_POINT("keeper.after_del");
      acknowledge(request, dropped, Done{});
    } else if (std::holds_alternative<wire::Take>(message)) {
      Result<std::uint64_t> handed =
          kept_.hand_over(channel_.get(), request, std::chrono::steady_clock::now() + kHandOverPatience);
      acknowledge(request, handed.ok() ? *handed : 0, handed.ok() ? Status(Done{}) : Status(handed.error()));
    } else if (std::holds_alternative<wire::Pong>(message)) {
      missed_ = 0;
    } else if (std::holds_alternative<wire::Ready>(message)) {
      ready_ = true;
      was_ready_ = true;
      missed_ = 0;
    }
  }

  void acknowledge(std::uint64_t request, std::uint64_t count, const Status& status) {
    auto ack = wire::make<wire::Ack>(request, 0);
    ack.count = count;
    ack.code = status.ok() ? 0 : 1 + static_cast<std::uint32_t>(status.error().code);
    const Status sent = channel::send(channel_.get(), wire::bytes_of(ack), {},
                                      std::chrono::steady_clock::now() + kHandOverPatience);
    if (!sent.ok()) log::error("lost", {{"what", "answer to the broker"}, {"why", sent.error().message}});
  }

  void handle_death() {
    int status = 0;
    waitpid(broker_, &status, 0);
    const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                : "exit code " + std::to_string(WEXITSTATUS(status));
    broker_ = -1;
    channel_.reset();
    pidfd_.reset();
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    clean_end_ = code == 0;
    if (stopping_ticks_ > 0 || !was_ready_) {
      exit_code_ = stopping_ticks_ > 0 ? 0 : std::max(code, 1);
      if (stopping_ticks_ > 0 && !WIFSIGNALED(status)) exit_code_ = code;
      return;
    }
    if (!WIFSIGNALED(status) && code == 0) {
      exit_code_ = 0;  // it was told to stop by somebody else, and did
      return;
    }
    log::error("lost", {{"what", "broker"}, {"how", how}, {"kept", std::to_string(kept_.size())}});
    back_off_ticks_ = back_off_;
    back_off_ = std::min(back_off_ * 2, kMaxBackOffTicks);
    if (back_off_ticks_ <= 1) restart();  // the first time at once: clients wait
  }

  void restart() {
    ++restarts_;
    const Status started = start_broker();
    if (started.ok()) {
      log::warning(
          "recovered",
          {{"what", "broker"}, {"pid", std::to_string(broker_)}, {"restarts", std::to_string(restarts_)}});
      return;
    }
    log::error("lost", {{"what", "broker"}, {"why", started.error().message}});
    back_off_ticks_ = back_off_;
  }

  std::vector<std::string> argv_;
  sigset_t inherited_mask_{};
  Fd signals_;
  Fd ticks_;
  Fd channel_;
  Fd pidfd_;
  KeptFds kept_;
  pid_t broker_ = -1;
  int missed_ = 0;
  bool ready_ = false;      // this broker
  bool was_ready_ = false;  // some broker
  bool clean_end_ = false;  // the last one was told to stop, and did
  int ready_ticks_ = 0;     // this one's, at most
  int restarts_ = 0;
  int back_off_ = 1;        // ticks before the next restart that follows a failed one
  int back_off_ticks_ = 0;  // left of it
  int stopping_ticks_ = 0;  // 0: not stopping
  std::optional<int> exit_code_;
};

}  // namespace

int run_keeper(const std::vector<std::string>& argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a log reader that went away
  log::open("keeper");
  log::check_level();
  raise_fd_limit();
  return Keeper(argv).run();
}

}  // namespace apportion
