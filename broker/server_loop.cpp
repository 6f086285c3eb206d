#include "broker/server_loop.hpp"

#include <fcntl.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "shm/fd.hpp"

namespace apportion {

struct Loop::State {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::signal_set signals{io};
  std::function<void(int)> on_signal;

  void await_signal() {
    signals.async_wait([this](const asio::error_code& error, int signal) {
      if (error) return;
      on_signal(signal);
      await_signal();
    });
  }
};

namespace {

// Shared with the handlers in flight, which may outlive the Watch: `alive` tells them.
struct Descriptor : std::enable_shared_from_this<Descriptor> {
  asio::posix::stream_descriptor descriptor;
  asio::posix::stream_descriptor::wait_type what;
  std::function<void()> callback;
  bool alive = true;

  Descriptor(asio::io_context& io, asio::posix::stream_descriptor::wait_type w, std::function<void()> c)
      : descriptor(io), what(w), callback(std::move(c)) {}

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
  DescriptorWatch(std::shared_ptr<Descriptor> shared, Fd copy)
      : shared_(std::move(shared)), copy_(std::move(copy)) {
    shared_->arm();
  }
  ~DescriptorWatch() override {
    shared_->alive = false;
    // Not close(): that leaves the kernel's registration in place while another descriptor (a copy here, or
    // the keeper's) has the same file open, and it would fire for whatever is watched under that number next.
    shared_->descriptor.release();
  }

 private:
  std::shared_ptr<Descriptor> shared_;
  Fd copy_;  // closed after the release
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

// `copy` is none, or what `fd` names.
std::unique_ptr<Loop::Watch> watch(asio::io_context& io, int fd, Fd copy,
                                   asio::posix::stream_descriptor::wait_type what,
                                   std::function<void()> callback) {
  auto shared = std::make_shared<Descriptor>(io, what, std::move(callback));
  asio::error_code error;
  shared->descriptor.assign(fd, error);
  if (error) return nullptr;
  return std::make_unique<DescriptorWatch>(std::move(shared), std::move(copy));
}

}  // namespace

Loop::Loop() : state_(std::make_unique<State>()) {}
Loop::~Loop() = default;

std::unique_ptr<Loop::Watch> Loop::on_readable(int fd, std::function<void()> callback) {
  return watch(state_->io, fd, {}, asio::posix::stream_descriptor::wait_read, std::move(callback));
}

std::unique_ptr<Loop::Watch> Loop::on_writable(int fd, std::function<void()> callback) {
  // epoll takes one number once, and this one may be watched for reading.
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return nullptr;
  const int number = copy.get();
  return watch(state_->io, number, std::move(copy), asio::posix::stream_descriptor::wait_write,
               std::move(callback));
}

std::unique_ptr<Loop::Watch> Loop::after(std::chrono::nanoseconds delay, std::function<void()> callback) {
  auto alarm = std::make_shared<Alarm>(Alarm{asio::steady_timer(state_->io, delay), std::move(callback)});
  alarm->timer.async_wait([alarm](const asio::error_code& error) {
    if (alarm->alive && !error) alarm->callback();
  });
  return std::make_unique<AlarmWatch>(std::move(alarm));
}

void Loop::on_signals(std::initializer_list<int> signals, std::function<void(int)> callback) {
  for (const int signal : signals)
    state_->signals.add(signal);
  state_->on_signal = std::move(callback);
  state_->await_signal();
}

void Loop::post(std::function<void()> callback) {
  asio::post(state_->io, std::move(callback));
}
void Loop::run() noexcept {
  state_->io.run();
}
void Loop::turn(std::chrono::milliseconds most) noexcept {
  if (state_->io.poll_one() == 0) state_->io.run_one_for(most);
}
void Loop::stop() {
  state_->io.stop();
}

}  // namespace apportion
