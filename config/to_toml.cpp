// Writes a Config as a file that parses to the same Config.
#include <array>
#include <cstdio>

#include "config/config.hpp"

namespace apportion {
namespace {

// A TOML basic string. Bytes from 0x80 on are the file's own UTF-8 and stay as they are.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
      continue;
    }
    std::array<char, 8> escaped{};
    std::snprintf(escaped.data(), escaped.size(), "\\u%04x", byte);
    out += escaped.data();
  }
  return out + "\"";
}

class Writer {
 public:
  void table(const std::string& name) { text_ += (text_.empty() ? "[" : "\n[") + name + "]\n"; }
  void word(const char* key, std::string_view value) { line(key, toml_string(value)); }
  void line(const char* key, const std::string& value) { text_ += std::string{key} + " = " + value + "\n"; }
  void amount(const char* key, const std::optional<Amount>& value) {
    if (value) word(key, spell(*value));
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_broker(Writer& out, const BrokerConfig& broker) {
  out.table("broker");
  out.word("device", spell(broker.device));
  out.amount("pool", broker.pool);
  out.word("chunk", spell(broker.chunk));
  if (broker.reserve) out.word("reserve", to_text(*broker.reserve));
  out.amount("overhead", broker.overhead);
  out.word("reclaim_deadline", spell(broker.reclaim_deadline));
  out.word("reattach_window", spell(broker.reattach_window));
  out.word("idle_return", spell(broker.idle_return));
  out.line("sessions_per_uid", std::to_string(broker.sessions_per_uid));
  out.line("requests_per_second", std::to_string(broker.requests_per_second));
  out.line("fail_open", broker.fail_open ? "true" : "false");
}

void write_job(Writer& out, const JobConfig& job) {
  out.table("jobs." + toml_string(job.name));
  out.amount("guarantee", job.guarantee);
  out.amount("limit", job.limit);
  out.line("priority", std::to_string(job.priority));
  out.word("hold", to_text(job.hold));
  out.line("lend", job.lend ? "true" : "false");
  out.word("report", to_text(job.report));
  out.word("overdue", to_text(job.overdue));
  out.word("library_room", spell(job.library_room));
  out.word("wait", spell(job.wait));
  out.word("scrub", to_text(job.scrub));
  out.word("return", to_text(job.return_rule));
  out.word("transport", to_text(job.transport));
  out.word("serve", to_text(job.serve));
  if (job.users.empty()) return;
  std::string users;
  for (const UserRule& rule : job.users)
    users += (users.empty() ? "" : ", ") + toml_string(rule.text);
  out.line("users", "[" + users + "]");
}

}  // namespace

std::string to_toml(const Config& config) {
  Writer out;
  write_broker(out, config.broker);
  for (const JobConfig& job : config.jobs)
    write_job(out, job);
  out.table("adhoc");
  out.word("max_guarantee", spell(config.adhoc.max_guarantee));
  out.word("max_per_user", spell(config.adhoc.max_per_user));
  return out.take();
}

}  // namespace apportion
