// The link's part for what comes unasked: the watch between exchanges, and recalls and losses until somebody
// takes them.
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "libclient/broker_link.hpp"

namespace apportion {

BrokerLink::Exchange::Exchange(BrokerLink& link) : link_(link), lock_(link.mutex_) {
  link_.set_watched(false);
}

BrokerLink::Exchange::~Exchange() {
  link_.set_watched(true);
}

Status BrokerLink::watch(int epoll) {
  const std::lock_guard lock(mutex_);
  if (epoll < 0) set_watched(false);
  epoll_ = epoll;
  if (!set_watched(true)) return system_error("cannot watch the broker's socket", errno);
  return Done{};
}

// Off the watch it must be, not only unheeded: the end of the connection would be told at once, over and
// over.
bool BrokerLink::set_watched(bool on) {
  if (epoll_ < 0 || !socket_) return true;
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, socket_.get(), &event) == 0;
}

std::optional<BrokerLink::Recall> BrokerLink::take_recall() {
  const std::lock_guard lock(recalls_mutex_);
  if (recalls_.empty()) return std::nullopt;
  const Recall oldest = recalls_.front();
  recalls_.pop_front();
  recalls_waiting_ = recalls_.size();
  return oldest;
}

BrokerLink::LostSlabs BrokerLink::take_lost_slabs() {
  const std::lock_guard lock(lost_slabs_mutex_);
  return std::exchange(lost_slabs_, {});
}

std::string BrokerLink::lost_slabs_text() {
  const std::lock_guard lock(lost_slabs_mutex_);
  return lost_slabs_text_;
}

}  // namespace apportion
