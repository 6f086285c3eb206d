#include "config/config.hpp"

#include "shm/quote.hpp"

namespace apportion {
namespace {

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

const char* to_text(Reserve value) {
  return value == Reserve::all ? "all" : "leased";
}
const char* to_text(Hold value) {
  return value == Hold::attached ? "attached" : "always";
}
const char* to_text(Overdue value) {
  return value == Overdue::deny ? "deny" : "evict";
}
const char* to_text(Transport value) {
  return value == Transport::vmm ? "vmm" : "ipc";
}
const char* to_text(Serve value) {
  return value == Serve::credit ? "credit" : "lease";
}

const char* to_text(ReportRule value) {
  switch (value) {
    case ReportRule::automatic:
      return "auto";
    case ReportRule::guarantee:
      return "guarantee";
    case ReportRule::limit:
      break;
  }
  return "limit";
}

const char* to_text(Scrub value) {
  switch (value) {
    case Scrub::cross_owner:
      return "cross-owner";
    case Scrub::always:
      return "always";
    case Scrub::never:
      break;
  }
  return "never";
}

const char* to_text(ReturnRule value) {
  switch (value) {
    case ReturnRule::automatic:
      return "auto";
    case ReturnRule::trusted:
      return "trusted";
    case ReturnRule::strict:
      break;
  }
  return "strict";
}

const JobConfig* Config::find_job(std::string_view name) const {
  for (const JobConfig& job : jobs) {
    if (job.name == name) return &job;
  }
  return nullptr;
}

std::string Config::where(std::string_view key) const {
  while (!key.empty()) {
    if (const auto line = lines.find(key); line != lines.end())
      return file + ":" + std::to_string(line->second);
    // A job's name may hold a dot, so this may ask for a key that is none: it is not in the map then.
    const std::size_t dot = key.rfind('.');
    key = dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
  }
  return file;
}

std::string Config::written(std::string_view key, const std::string& otherwise) const {
  const auto text = texts.find(key);
  return text == texts.end() ? otherwise : text->second;
}

Status check_job_name(std::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxJobName && is_name_letter(name.front());
  for (const char c : name)
    good = good && (is_name_letter(c) || c == '.' || c == '_' || c == '-');
  if (good) return Done{};
  return Error{Errc::invalid,
               in_quotes(name) +
                   " cannot be a job's name; use 1 to 63 of A-Z a-z 0-9 . _ - and begin with a letter "
                   "or a digit"};
}

Status check_reload(const Config& running, const Config& next) {
  const auto refuse = [&](const char* key, const char* why) {
    return Error{Errc::invalid, next.where(key) + ": " + key + " cannot change while the broker runs" + why +
                                    "; restart the broker, or put the old value back"};
  };
  if (next.broker.device != running.broker.device) return refuse("broker.device", "");
  if (next.broker.pool != running.broker.pool) return refuse("broker.pool", "");
  if (next.broker.chunk != running.broker.chunk) return refuse("broker.chunk", "");
  if (next.broker.reserve != running.broker.reserve) return refuse("broker.reserve", "");
  // With pool = "auto" the pool follows from the overhead.
  if (!next.broker.pool && next.broker.overhead != running.broker.overhead) {
    return refuse("broker.overhead", R"( with pool = "auto")");
  }
  return Done{};
}

}  // namespace apportion
