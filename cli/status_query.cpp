#include "cli/status_query.hpp"

#include <chrono>

#include "shm/channel.hpp"
#include "shm/find_broker.hpp"
#include "shm/quote.hpp"

namespace apportion {
namespace {

template <typename M, typename Row>
bool append(const wire::Message& message, std::vector<Row>& rows) {
  const auto* list = std::get_if<M>(&message);
  if (list == nullptr) return false;
  rows.insert(rows.end(), list->rows.begin(), list->rows.begin() + list->part.count);
  return true;
}

Result<StatusAnswer> ask_on(const Connection& connection) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto request = wire::make<wire::StatusRequest>(1, 0);
  const int socket = connection.socket.get();
  if (Status sent = channel::send(socket, wire::bytes_of(request), {}, deadline); !sent.ok())
    return sent.error();
  StatusAnswer answer;
  channel::Datagram datagram;
  while (true) {
    if (Status got = channel::receive(socket, datagram, deadline); !got.ok())
      return Error{got.error().code,
                   "the broker at " + connection.path + " did not answer: " + got.error().message};
    Result<wire::Message> message = wire::decode(datagram.bytes(), wire::Sender::broker);
    if (!message.ok()) return Error{Errc::protocol, connection.path + ": " + message.error().message};
    if (const auto* refused = std::get_if<wire::Refused>(&*message))
      return Error{static_cast<Errc>(refused->code), std::string(refused->text.view())};
    if (const auto* last = std::get_if<wire::StatusBroker>(&*message)) {
      answer.broker = last->row;
      return answer;
    }
    if (!append<wire::StatusJobs>(*message, answer.jobs) &&
        !append<wire::StatusSessions>(*message, answer.sessions) &&
        !append<wire::StatusHolders>(*message, answer.holders))
      return Error{Errc::protocol, connection.path + ": the broker answered something else than its status"};
  }
}

}  // namespace

Result<StatusAnswer> ask_status(const std::string& device) {
  const Environment environment = Environment::current();
  Result<Connection> connection = connect_to_broker(environment, device, "--device or APPORTION_SOCKET");
  if (!connection.ok()) return connection.error();
  Result<StatusAnswer> answer = ask_on(*connection);
  // Where APPORTION_SOCKET names the place, the device was not what chose it.
  if (answer.ok() && !begins_device(device, answer->broker.device_uuid.view())) {
    return Error{Errc::not_found, "the broker at " + connection->path + " has device " +
                                      std::string(answer->broker.device_uuid.view()) + ", not " +
                                      in_quotes(device) + "; unset APPORTION_SOCKET to look for the other"};
  }
  return answer;
}

Result<StatusAnswer> ask_status_at(const std::string& socket_path) {
  Result<Fd> socket = connect_to(socket_path);
  if (!socket.ok()) return socket.error();
  return ask_on({*std::move(socket), socket_path});
}

}  // namespace apportion
