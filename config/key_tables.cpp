#include "config/key_tables.hpp"

#include <type_traits>

#include "config/keys.hpp"

namespace apportion {
namespace {

// Leaves the default where the value was refused.
template <typename To, typename From>
void store(To& target, std::optional<From> value) {
  if constexpr (std::is_integral_v<To>) {
    if (value) target = static_cast<To>(*value);  // the reader checked the range
  } else if (value) {
    target = *std::move(value);
  }
}

void read_chunk(Value& value, Bytes& target) {
  const std::optional<Bytes> chunk = value.bytes();
  if (!chunk) return;
  const bool is_power_of_two = chunk->value != 0 && (chunk->value & (chunk->value - 1)) == 0;
  if (is_power_of_two && *chunk >= kMinChunk && *chunk <= kMaxChunk) {
    target = *chunk;
  } else {
    value.refuse(shown(value.written()) +
                 " cannot be the chunk; write 2MiB, 4MiB, 8MiB and so on, up to 1GiB");
  }
}

void read_users(Value& value, JobTarget& target) {
  const WrittenList* users = value.written().as<WrittenList>();
  if (users == nullptr) return value.refuse_type(R"(a list such as ["alice", "@ml"])");
  // An empty list means nobody to one reader and everybody to another.
  if (users->empty()) {
    return value.refuse(
        "an empty list lets nobody in; name somebody, or leave the key out for whoever reaches the socket");
  }
  for (const Written& user : *users) {
    std::string text;
    if (const auto* name = user.as<std::string>()) {
      text = *name;
    } else if (const auto* id = user.as<std::int64_t>()) {
      text = std::to_string(*id);
    } else {
      value.refuse(shown(user) + R"( names nobody; write a user "alice", a uid 1000 or a group "@ml")");
      continue;
    }
    Result<UserRule> rule = parse_user_rule(text, target.names);
    if (rule) {
      target.job.users.push_back(*std::move(rule));
    } else {
      value.refuse(rule.error().message);
    }
  }
}

constexpr std::int64_t kMaxCap = 1'000'000;

constexpr std::array<Key<BrokerConfig>, 11> kBrokerKeys{{
    {"device", "\"0\"",
     [](Value& v, BrokerConfig& b) {
       store(b.device, v.spelled(parse_device, R"(a device such as "0" or "GPU-...", in quotes)"));
     }},
    {"pool", "\"auto\"",
     [](Value& v, BrokerConfig& b) {
       if (!v.says_auto()) store(b.pool, v.amount_above_zero());
     }},
    {"chunk", "\"32MiB\"", [](Value& v, BrokerConfig& b) { read_chunk(v, b.chunk); }},
    {"reserve", "-",
     [](Value& v, BrokerConfig& b) {
       store(b.reserve, v.word(std::array{Reserve::all, Reserve::leased}));
     }},
    {"overhead", "\"auto\"",
     [](Value& v, BrokerConfig& b) {
       if (!v.says_auto()) store(b.overhead, v.amount());
     }},
    {"reclaim_deadline", "\"2s\"",
     [](Value& v, BrokerConfig& b) {
       const std::optional<Duration> deadline = v.duration();
       if (deadline == Duration{0}) {
         v.refuse(shown(v.written()) +
                  " leaves no time to give memory back; write a duration such as \"2s\"");
       } else {
         store(b.reclaim_deadline, deadline);
       }
     }},
    {"reattach_window", "\"5s\"", [](Value& v, BrokerConfig& b) { store(b.reattach_window, v.duration()); }},
    {"idle_return", "\"30s\"", [](Value& v, BrokerConfig& b) { store(b.idle_return, v.duration()); }},
    {"sessions_per_uid", "256",
     [](Value& v, BrokerConfig& b) { store(b.sessions_per_uid, v.integer(1, kMaxCap)); }},
    {"requests_per_second", "1000",
     [](Value& v, BrokerConfig& b) { store(b.requests_per_second, v.integer(1, kMaxCap)); }},
    {"fail_open", "false", [](Value& v, BrokerConfig& b) { store(b.fail_open, v.boolean()); }},
}};

constexpr std::array<Key<JobTarget>, 15> kJobKeys{{
    {"share", "-", [](Value& v, JobTarget& t) { store(t.share, v.share()); }},
    {"guarantee", "\"0B\"", [](Value& v, JobTarget& t) { store(t.job.guarantee, v.amount()); }},
    {"limit", "\"100%\"", [](Value& v, JobTarget& t) { store(t.job.limit, v.amount_above_zero()); }},
    {"priority", "0", [](Value& v, JobTarget& t) { store(t.job.priority, v.integer(INT32_MIN, INT32_MAX)); }},
    {"hold", "\"attached\"",
     [](Value& v, JobTarget& t) {
       store(t.job.hold, v.word(std::array{Hold::attached, Hold::always}));
     }},
    {"lend", "true", [](Value& v, JobTarget& t) { store(t.job.lend, v.boolean()); }},
    {"report", "\"auto\"",
     [](Value& v, JobTarget& t) {
       store(t.job.report,
             v.word(std::array{ReportRule::automatic, ReportRule::guarantee, ReportRule::limit}));
     }},
    {"overdue", "\"deny\"",
     [](Value& v, JobTarget& t) {
       store(t.job.overdue, v.word(std::array{Overdue::deny, Overdue::evict}));
     }},
    {"library_room", "\"0B\"", [](Value& v, JobTarget& t) { store(t.job.library_room, v.bytes()); }},
    {"wait", "\"10s\"", [](Value& v, JobTarget& t) { store(t.job.wait, v.duration()); }},
    {"scrub", "\"cross-owner\"",
     [](Value& v, JobTarget& t) {
       store(t.job.scrub, v.word(std::array{Scrub::cross_owner, Scrub::always, Scrub::never}));
     }},
    {"return", "\"auto\"",
     [](Value& v, JobTarget& t) {
       store(t.job.return_rule,
             v.word(std::array{ReturnRule::automatic, ReturnRule::trusted, ReturnRule::strict}));
     }},
    {"transport", "\"vmm\"",
     [](Value& v, JobTarget& t) {
       store(t.job.transport, v.word(std::array{Transport::vmm, Transport::ipc}));
     }},
    {"serve", "\"credit\"",
     [](Value& v, JobTarget& t) {
       store(t.job.serve, v.word(std::array{Serve::credit, Serve::lease}));
     }},
    {"users", "-", read_users},
}};

constexpr std::array<Key<AdhocConfig>, 2> kAdhocKeys{{
    {"max_guarantee", "\"0.5\"", [](Value& v, AdhocConfig& a) { store(a.max_guarantee, v.amount()); }},
    {"max_per_user", "\"0.5\"", [](Value& v, AdhocConfig& a) { store(a.max_per_user, v.amount()); }},
}};

}  // namespace

std::span<const Key<BrokerConfig>> broker_keys() {
  return kBrokerKeys;
}
std::span<const Key<JobTarget>> job_keys() {
  return kJobKeys;
}
std::span<const Key<AdhocConfig>> adhoc_keys() {
  return kAdhocKeys;
}

std::vector<KeyInfo> config_keys() {
  std::vector<KeyInfo> keys;
  for (const auto& key : kBrokerKeys)
    keys.push_back({"broker", key.name, key.default_text});
  for (const auto& key : kJobKeys)
    keys.push_back({"jobs", key.name, key.default_text});
  for (const auto& key : kAdhocKeys)
    keys.push_back({"adhoc", key.name, key.default_text});
  return keys;
}

}  // namespace apportion
