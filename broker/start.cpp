#include "broker/start.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "broker/device_lock.hpp"
#include "broker/journal_image.hpp"
#include "broker/log.hpp"
#include "broker/shell.hpp"
#include "config/find.hpp"
#include "config/open_files.hpp"
#include "gpu/simulator.hpp"
#include "shm/memfd.hpp"
#include "shm/page_mapping.hpp"
#include "shm/socket_path.hpp"

namespace apportion {
namespace {

// The socket's file while this process is the one to remove it: a start that is refused changes nothing, and
// a clean stop leaves nothing behind. Once a keeper restarts brokers, a crash leaves it for the next one.
class SocketFile {
 public:
  SocketFile() = default;
  ~SocketFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  void remove_at_end(std::string path) { path_ = std::move(path); }
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

struct Opened {
  Fd lock;
  Fd listening;
  Fd journal_fd;
  PageMapping journal_pages;
  std::string socket_path;
  SocketFile socket_file;
};

Result<Config> find_and_read(const std::string& given) {
  Result<std::string> path =
      find_config(config_search(given.empty() ? std::nullopt : std::optional<std::string>(given)));
  if (!path.ok()) return path.error();
  return read_config(*path, system_names());
}

// For those who ask from another folder.
std::string whole_path(const std::string& file) {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::canonical(file, failed);
  return failed ? file : path.string();
}

std::array<std::uint64_t, 2> uuid_words(const std::string& uuid) {
  std::array<std::uint64_t, 2> words{};
  std::size_t digits = 0;
  for (const char c : uuid.substr(uuid.find('-') + 1)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0 || digits == 32) continue;
    words[digits / 16] = words[digits / 16] << 4 | static_cast<std::uint64_t>(digit);
    ++digits;
  }
  return words;
}

// Kept by the keeper, where there is one to keep it.
Result<Journal> make_journal(KeeperLink* keeper, const JournalShape& shape, Opened& opened) {
  const Bytes bytes = round_up(Bytes{shape.bytes()}, 4_KiB);
  Result<Fd> memfd = make_memfd("apportion-journal", bytes);
  if (!memfd.ok()) return memfd.error();
  Result<PageMapping> pages = PageMapping::map(memfd->get(), bytes, PageMapping::Access::read_write);
  if (!pages.ok()) return pages.error();
  opened.journal_pages = *std::move(pages);
  opened.journal_fd = *std::move(memfd);
  Result<Journal> journal =
      Journal::format({static_cast<std::byte*>(opened.journal_pages.data()), bytes.value}, shape);
  if (!journal.ok()) return journal.error();
  if (keeper == nullptr) return journal;
  if (Status kept = keeper->put_now(wire::KeptKind::journal, bytes, opened.journal_fd.get()); !kept.ok())
    return kept.error();
  return journal;
}

Result<Journal> adopt_journal(KeeperLink::Inheritance& kept, Opened& opened) {
  if (!kept.journal) return Error{Errc::protocol, "no journal was kept"};
  Result<PageMapping> pages =
      PageMapping::map(kept.journal.get(), kept.journal_bytes, PageMapping::Access::read_write);
  if (!pages.ok()) return pages.error();
  Result<Journal> journal = Journal::open({static_cast<std::byte*>(pages->data()), kept.journal_bytes.value});
  if (!journal.ok()) return journal.error();
  opened.journal_pages = *std::move(pages);
  opened.journal_fd = std::move(kept.journal);
  return journal;
}

// What a predecessor left; a new journal where there is none. `closed` says why nothing may be granted, where
// the journal itself cannot say it.
Result<Journal> find_journal(KeeperLink& keeper, KeeperLink::Inheritance& kept, const JournalShape& shape,
                             Opened& opened, std::string& closed) {
  if (!kept.journal && kept.chunks == 0) return make_journal(&keeper, shape, opened);
  Result<Journal> journal = adopt_journal(kept, opened);
  if (!journal.ok()) {
    // F17, F19: what is leased is unknown. The keeper keeps the old journal: this one is for us alone.
    closed = "what an earlier broker left cannot be read (" + journal.error().message + "), and " +
             std::to_string(kept.chunks) + " chunks are kept";
    return make_journal(nullptr, shape, opened);
  }
  // The device is what the keeper's lock is for; another one needs another keeper.
  if (journal->shape().device_uuid != shape.device_uuid)
    return Error{
        Errc::invalid,
        "the config names another device than the one that this keeper keeps memory of: name the old "
        "device again, or end its clients, then stop apportiond (kill -TERM " +
            std::to_string(getppid()) + ") and start it again"};
  // Nothing is leased: a changed pool may start with a new journal. One with leases is the core's to judge.
  const Result<JournalImage> image = read_journal(journal->memory());
  if (image.ok() && image->empty() && journal->shape() != shape) return make_journal(&keeper, shape, opened);
  return journal;
}

// Lock before memory, and both to the keeper, so that they outlive this process.
Status lock_and_listen(KeeperLink& keeper, KeeperLink::Inheritance& kept, const std::string& uuid,
                       Opened& opened) {
  Result<std::string> path = broker_socket_path(Environment::current(), uuid);
  if (!path.ok()) return path.error();
  opened.socket_path = *path;
  if (kept.device_lock && kept.listening_socket) {
    opened.lock = std::move(kept.device_lock);
    opened.listening = std::move(kept.listening_socket);
    return own_lock(opened.lock);
  }
  Result<Fd> lock = lock_device(uuid);
  if (!lock.ok()) return lock.error();
  Result<Fd> listening =
      listen_at(*path, 0666);  // who may join which job is decided by the kernel's word on who asks
  if (!listening.ok()) return listening.error();
  opened.lock = *std::move(lock);
  opened.listening = *std::move(listening);
  opened.socket_file.remove_at_end(opened.socket_path);
  if (Status put = keeper.put_now(wire::KeptKind::device_lock, {}, opened.lock.get()); !put.ok()) return put;
  return keeper.put_now(wire::KeptKind::listening_socket, {}, opened.listening.get());
}

int refuse(const Error& error) {
  std::fprintf(stderr, "apportiond: %s\n", error.message.c_str());
  return 1;
}

int serve(Loop& loop, KeeperLink& keeper, Config config, const BrokerOptions& options) {
  const std::uint32_t restarts = options.restarts;
  Result<KeeperLink::Inheritance> kept = keeper.take();
  if (!kept.ok()) return refuse(kept.error());
  Result<Device> device = Device::open(config.broker.device);
  if (!device.ok())
    return refuse({device.error().code, config.where("broker.device") + ": " + device.error().message});
  Result<DeviceMonitor> monitor = DeviceMonitor::open(*device);
  if (!monitor.ok()) return refuse(monitor.error());
  Result<DeviceFacts> facts = facts_for_load(*device, *monitor);
  if (!facts.ok()) return refuse(facts.error());
  // What a predecessor left is ours, not others'.
  facts->in_use = saturating_sub(facts->in_use, config.broker.chunk * kept->chunks);
  const LoadReport load = apportion::load(config, *facts);
  if (Status good = load.status(); !good.ok()) return refuse(good.error());
  // Better one clear line now than a pool that cannot be kept.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (Status fits = check_open_files(config, load, limit.rlim_max); !fits.ok()) return refuse(fits.error());

  const DeviceDescription& description = device->facts();
  Opened opened;
  if (Status locked = lock_and_listen(keeper, *kept, description.uuid, opened); !locked.ok())
    return refuse(locked.error());
  // After the lock: a second broker is told who is first, and nothing about memory that the first one has.
  for (const std::string& warning : load.warnings)
    log::warning("config", {{"warning", warning}});
  JournalShape shape = JournalShape::for_pool(load.pool, load.chunk, description.granularity);
  shape.device_uuid = uuid_words(description.uuid);
  std::string closed;
  Result<Journal> journal = find_journal(keeper, *kept, shape, opened, closed);
  if (!journal.ok()) return refuse(journal.error());

  ShellParts parts;
  parts.setup = core_setup(config, load, 1 + restarts);
  parts.setup.granularity = description.granularity;
  parts.setup.closed = std::move(closed);
  parts.setup.stop_pid = getpid();
  parts.setup.own_uid = geteuid();
  parts.facts = {.device_uuid = description.uuid,
                 .device_name = description.name,
                 .socket = opened.socket_path,
                 .config = whole_path(config.file),
                 .note = {},
                 .keeper_pid = static_cast<std::uint32_t>(getppid()),
                 .uptime_ms = 0,
                 .restarts = restarts,
                 .simulated = description.simulated,
                 .leased = load.reserve == Reserve::leased,
                 .epoch = parts.setup.epoch};
  parts.driver_path = description.driver_file;
  parts.cudasim_dir = description.simulated ? simulator_folder() : "";
  // A simulated device is found by the variables that opening it has set for our children.
  parts.helper_device = description.simulated ? spell(config.broker.device) : description.uuid;
  if (options.helper_patience_ms)
    parts.helper.patience = std::chrono::milliseconds(*options.helper_patience_ms);
  parts.config = std::move(config);
  parts.load = load;
  Shell shell(loop, std::move(parts), *device, *monitor, *journal, keeper, opened.listening.get());
  if (Status pages = shell.open(); !pages.ok()) return refuse(pages.error());
  const int code = shell.run();
  if (code == 0) {
    opened.socket_file.remove_at_end(opened.socket_path);
  } else if (shell.was_ready()) {
    opened.socket_file.keep();  // the keeper starts the next broker, which takes the socket over
  }
  return code;
}

}  // namespace

int run_broker(BrokerOptions options) {
  // The keeper starts us as /proc/self/exe: for people and for ps it is apportiond.
  prctl(PR_SET_NAME, "apportiond");
  // A log reader that went away, and a reload or a lost terminal before there is a loop, end nobody.
  for (const int signal : {SIGPIPE, SIGHUP})
    std::signal(signal, SIG_IGN);
  umask(022);  // the socket's folders are for all users, whatever umask we were started with
  log::open("broker");
  Result<Config> config = find_and_read(options.config);
  if (!config.ok()) return refuse(config.error());
  Loop loop;
  KeeperLink keeper(loop, std::move(options.keeper_channel));
  return serve(loop, keeper, *std::move(config), options);
}

}  // namespace apportion
