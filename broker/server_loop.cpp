#include "broker/server_loop.hpp"

#include <fcntl.h>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include <csignal>

namespace apportion {

struct Loop::State {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::signal_set signals{io};
};

namespace {

// Shared with the handlers in flight, which may outlive the Watch: `alive` tells them.
struct Descriptor : std::enable_shared_from_this<Descriptor> {
  // A copy of its own: epoll takes one number once, and a socket may be watched for both directions.
  asio::posix::stream_descriptor descriptor;
  asio::posix::stream_descriptor::wait_type what;
  std::function<void()> callback;
  bool alive = true;

  Descriptor(asio::io_context& io, int fd, asio::posix::stream_descriptor::wait_type w,
             std::function<void()> c)
      : descriptor(io, fd), what(w), callback(std::move(c)) {}

  void arm() {
    descriptor.async_wait(what, [self = shared_from_this()](const asio::error_code& error) {
      if (!self->alive || error) return;
      self->callback();
      if (self->alive) self->arm();
    });
  }
};

class DescriptorWatch final : public Loop::Watch {
 public:
  explicit DescriptorWatch(std::shared_ptr<Descriptor> shared) : shared_(std::move(shared)) {
    shared_->arm();
  }
  ~DescriptorWatch() override {
    shared_->alive = false;
    asio::error_code ignored;
    shared_->descriptor.close(ignored);  // the copy; cancels what waits
  }

 private:
  std::shared_ptr<Descriptor> shared_;
};

struct Alarm {
  asio::steady_timer timer;
  std::function<void()> callback;
  bool alive = true;
};

class AlarmWatch final : public Loop::Watch {
 public:
  explicit AlarmWatch(std::shared_ptr<Alarm> alarm) : alarm_(std::move(alarm)) {}
  ~AlarmWatch() override {
    alarm_->alive = false;
    alarm_->timer.cancel();
  }

 private:
  std::shared_ptr<Alarm> alarm_;
};

std::unique_ptr<Loop::Watch> watch(asio::io_context& io, int fd,
                                   asio::posix::stream_descriptor::wait_type what,
                                   std::function<void()> callback) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return std::make_unique<DescriptorWatch>(std::make_shared<Descriptor>(io, copy, what, std::move(callback)));
}

}  // namespace

Loop::Loop() : state_(std::make_unique<State>()) {}
Loop::~Loop() = default;

std::unique_ptr<Loop::Watch> Loop::on_readable(int fd, std::function<void()> callback) {
  return watch(state_->io, fd, asio::posix::stream_descriptor::wait_read, std::move(callback));
}

std::unique_ptr<Loop::Watch> Loop::on_writable(int fd, std::function<void()> callback) {
  return watch(state_->io, fd, asio::posix::stream_descriptor::wait_write, std::move(callback));
}

std::unique_ptr<Loop::Watch> Loop::after(std::chrono::nanoseconds delay, std::function<void()> callback) {
  auto alarm = std::make_shared<Alarm>(Alarm{asio::steady_timer(state_->io, delay), std::move(callback)});
  alarm->timer.async_wait([alarm](const asio::error_code& error) {
    if (alarm->alive && !error) alarm->callback();
  });
  return std::make_unique<AlarmWatch>(std::move(alarm));
}

void Loop::on_stop_signal(std::function<void(int)> callback) {
  state_->signals.add(SIGTERM);
  state_->signals.add(SIGINT);
  state_->signals.async_wait([callback = std::move(callback)](const asio::error_code& error, int signal) {
    if (!error) callback(signal);
  });
}

void Loop::post(std::function<void()> callback) {
  asio::post(state_->io, std::move(callback));
}
void Loop::run() {
  state_->io.run();
}
void Loop::stop() {
  state_->io.stop();
}

}  // namespace apportion
