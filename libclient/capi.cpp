// The C face of the library: checks arguments, finds the session, turns Results into statuses and a line of
// text. No exception leaves it.
#include <apportion/apportion.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "libclient/fork_guard.hpp"
#include "libclient/registry.hpp"

namespace {

using namespace apportion;

static_assert(static_cast<int>(Errc::invalid) + 1 == APPORTION_INVALID);
static_assert(static_cast<int>(Errc::timed_out) + 1 == APPORTION_TIMED_OUT);

// Plain bytes and pointers: no destructor that could run before the last call of a thread (F48). The pointer
// is initial-exec: a signal handler sets it, to a constant text, and must not call malloc for it (F48).
constinit thread_local char text_buffer[1024] = "";
__attribute__((tls_model("initial-exec"))) constinit thread_local const char* last_error = "";

// A constant text. Async-signal-safe.
apportion_status fail_as(apportion_status status, const char* text) noexcept {
  last_error = text;
  return status;
}

apportion_status fail(const Error& error) noexcept {
  const std::size_t length = std::min(error.message.size(), sizeof text_buffer - 1);
  std::memcpy(text_buffer, error.message.data(), length);
  text_buffer[length] = '\0';
  return fail_as(static_cast<apportion_status>(static_cast<int>(error.code) + 1), text_buffer);
}

Registry::Handle handle_of(const apportion_client* client) noexcept {
  return reinterpret_cast<std::uintptr_t>(client);
}
Stream stream_of(apportion_stream stream) noexcept {
  return reinterpret_cast<std::uintptr_t>(stream);
}
Address address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

apportion_status not_attached() noexcept {
  return fail_as(APPORTION_NOT_ATTACHED, Registry::instance().not_attached());
}

// F48: this thread was interrupted inside a call; whatever it holds, malloc's lock included, must not be
// waited for.
apportion_status interrupted() noexcept {
  return fail_as(APPORTION_BUSY, "this signal handler interrupted a call of the library; call it elsewhere");
}

// No exception leaves `work`.
template <typename Work>
apportion_status guarded(Work&& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail_as(APPORTION_OUT_OF_MEMORY, "the host is out of memory");
  } catch (...) {
    return fail_as(APPORTION_SYSTEM, "an unexpected failure inside the library");
  }
}

// Runs `work` on the session, if it is one.
template <typename Work>
apportion_status with(apportion_client* client, Work&& work) noexcept {
  Client* const session = Registry::instance().find(handle_of(client));
  if (session == nullptr) return not_attached();
  if (session->interrupted()) return interrupted();
  return guarded([&] { return work(*session); });
}

std::string text_or(const char* given, const char* variable) {
  if (given == nullptr && variable != nullptr) given = std::getenv(variable);
  return given != nullptr ? given : "";
}

// Fills as much of the caller's structure as the caller knows of.
template <typename T>
apportion_status hand_over(T& ours, T* theirs) {
  ours.struct_size = std::min(theirs->struct_size, sizeof(T));  // what a newer caller's rest is not: filled
  std::memcpy(static_cast<void*>(theirs), &ours, ours.struct_size);
  return APPORTION_OK;
}

}  // namespace

extern "C" {

APPORTION_API const char* apportion_status_name(apportion_status status) {
  switch (status) {
    case APPORTION_OK:
      return "APPORTION_OK";
    case APPORTION_INVALID:
      return "APPORTION_INVALID";
    case APPORTION_NOT_FOUND:
      return "APPORTION_NOT_FOUND";
    case APPORTION_DENIED:
      return "APPORTION_DENIED";
    case APPORTION_QUOTA:
      return "APPORTION_QUOTA";
    case APPORTION_OUT_OF_MEMORY:
      return "APPORTION_OUT_OF_MEMORY";
    case APPORTION_DRIVER:
      return "APPORTION_DRIVER";
    case APPORTION_SYSTEM:
      return "APPORTION_SYSTEM";
    case APPORTION_PROTOCOL:
      return "APPORTION_PROTOCOL";
    case APPORTION_DISCONNECTED:
      return "APPORTION_DISCONNECTED";
    case APPORTION_NOT_ATTACHED:
      return "APPORTION_NOT_ATTACHED";
    case APPORTION_BUSY:
      return "APPORTION_BUSY";
    case APPORTION_TIMED_OUT:
      return "APPORTION_TIMED_OUT";
  }
  return "unknown";
}

APPORTION_API const char* apportion_last_error(void) {
  return last_error;
}

APPORTION_API const char* apportion_version(void) {
  return APPORTION_VERSION;
}

APPORTION_API apportion_status apportion_attach(const apportion_attach_options* options,
                                                apportion_client** client) {
  if (client == nullptr) return fail_as(APPORTION_INVALID, "apportion_attach: client is NULL");
  apportion_attach_options given = {};
  if (options != nullptr) {
    if (options->struct_size < sizeof(size_t) || options->struct_size > 4096) {
      return fail_as(APPORTION_INVALID,
                     "apportion_attach: set options.struct_size to sizeof(apportion_attach_options)");
    }
    std::memcpy(&given, options, std::min(options->struct_size, sizeof given));
    // A newer caller's option that it uses must not be dropped without a word.
    const auto* const bytes = reinterpret_cast<const unsigned char*>(options);
    for (std::size_t at = sizeof given; at < options->struct_size; ++at) {
      if (bytes[at] != 0) {
        return fail_as(
            APPORTION_INVALID,
            "apportion_attach: an option that this library is too old to know; install the version "
            "that the program was built with");
      }
    }
  }
  if ((given.flags & ~APPORTION_RECLAIMABLE) != 0) {
    return fail_as(APPORTION_INVALID, "apportion_attach: unknown flags");
  }
  Registry& registry = Registry::instance();
  if (registry.in_forked_child()) return not_attached();
  if (registry.interrupted()) return interrupted();
  return guarded([&] {
    if (Status guarding = install_fork_guard(); !guarding) return fail(guarding.error());
    BrokerLink::Options link;
    link.job = text_or(given.job, "APPORTION_JOB");
    link.socket = text_or(given.socket, nullptr);
    link.label = given.label != nullptr ? given.label : program_invocation_short_name;
    link.reclaimable = (given.flags & APPORTION_RECLAIMABLE) != 0;
    Result<std::unique_ptr<Client>> attached = Client::attach(link);
    if (!attached) return fail(attached.error());
    const Result<Registry::Handle> handle = registry.add(*std::move(attached));
    if (!handle) return fail(handle.error());
    *client = reinterpret_cast<apportion_client*>(*handle);  // NOLINT(performance-no-int-to-ptr): opaque
    return APPORTION_OK;
  });
}

APPORTION_API apportion_status apportion_detach(apportion_client* client) {
  Registry& registry = Registry::instance();
  if (registry.interrupted()) return interrupted();
  Client* const session = registry.hide(handle_of(client));  // a second detach finds nothing from here on
  if (session == nullptr) return not_attached();
  if (session->interrupted()) {
    registry.show(handle_of(client));
    return interrupted();
  }
  return guarded([&] {
    const Status ended = session->detach();
    if (!session->detached()) {
      registry.show(handle_of(client));
      return fail(ended.error());
    }
    const auto owned = registry.remove(handle_of(client));
    return ended ? APPORTION_OK : fail(ended.error());
  });
}

APPORTION_API apportion_status apportion_allocate(apportion_client* client, size_t bytes,
                                                  apportion_stream stream, uint32_t flags, void** pointer) {
  if (pointer == nullptr) return fail_as(APPORTION_INVALID, "apportion_allocate: pointer is NULL");
  if (flags == 0) {
    if (Client* const session = Registry::instance().find(handle_of(client))) {
      if (const Address block = session->try_allocate(Bytes{bytes}, stream_of(stream)); block != 0) {
        *pointer = reinterpret_cast<void*>(block);  // NOLINT(performance-no-int-to-ptr): a device address
        return APPORTION_OK;
      }
    }
  } else if (flags != APPORTION_EXACT) {
    return fail_as(APPORTION_INVALID, "apportion_allocate: unknown flags");
  }
  return with(client, [&](Client& session) {
    const Result<Address> block = session.allocate(Bytes{bytes}, stream_of(stream), flags != 0);
    if (!block) return fail(block.error());
    *pointer = reinterpret_cast<void*>(*block);  // NOLINT(performance-no-int-to-ptr): a device address
    return APPORTION_OK;
  });
}

APPORTION_API apportion_status apportion_deallocate(apportion_client* client, void* pointer,
                                                    apportion_stream stream) {
  if (Client* const session = Registry::instance().find(handle_of(client))) {
    if (session->try_deallocate(address_of(pointer), stream_of(stream))) return APPORTION_OK;
  }
  return with(client, [&](Client& session) {
    const Status freed = session.deallocate(address_of(pointer), stream_of(stream));
    return freed ? APPORTION_OK : fail(freed.error());
  });
}

APPORTION_API apportion_status apportion_stream_gone(apportion_client* client, apportion_stream stream) {
  return with(client, [&](Client& session) {
    const Status done = session.stream_gone(stream_of(stream));
    return done ? APPORTION_OK : fail(done.error());
  });
}

APPORTION_API apportion_status apportion_graph_pool_begin(apportion_client* client, apportion_stream stream,
                                                          apportion_graph_pool* pool) {
  if (pool == nullptr) return fail_as(APPORTION_INVALID, "apportion_graph_pool_begin: pool is NULL");
  return with(client, [&](Client& session) {
    const Result<std::uint64_t> bound = session.graph_pool_begin(stream_of(stream), *pool);
    if (!bound) return fail(bound.error());
    *pool = *bound;
    return APPORTION_OK;
  });
}

APPORTION_API apportion_status apportion_graph_pool_end(apportion_client* client, apportion_stream stream) {
  return with(client, [&](Client& session) {
    const Status done = session.graph_pool_end(stream_of(stream));
    return done ? APPORTION_OK : fail(done.error());
  });
}

APPORTION_API apportion_status apportion_graph_pool_release(apportion_client* client,
                                                            apportion_graph_pool pool) {
  return with(client, [&](Client& session) {
    const Status done = session.graph_pool_release(pool);
    return done ? APPORTION_OK : fail(done.error());
  });
}

APPORTION_API apportion_status apportion_reserve(apportion_client* client, size_t bytes) {
  return with(client, [&](Client& session) {
    const Status done = session.reserve(Bytes{bytes});
    return done ? APPORTION_OK : fail(done.error());
  });
}

APPORTION_API apportion_status apportion_trim_to(apportion_client* client, size_t bytes, size_t* returned) {
  return with(client, [&](Client& session) {
    const Result<Bytes> given = session.trim_to(Bytes{bytes});
    if (!given) return fail(given.error());
    if (returned != nullptr) *returned = given->value;
    return APPORTION_OK;
  });
}

APPORTION_API apportion_status apportion_get_info(apportion_client* client, apportion_info* info) {
  if (info == nullptr || info->struct_size < sizeof(size_t)) {
    return fail_as(APPORTION_INVALID, "apportion_get_info: set info.struct_size to sizeof(apportion_info)");
  }
  return with(client, [&](Client& session) {
    Result<apportion_info> figures = session.info();
    if (!figures) return fail(figures.error());
    return hand_over(*figures, info);
  });
}

APPORTION_API apportion_status apportion_get_stats(apportion_client* client, apportion_stats* stats) {
  if (stats == nullptr || stats->struct_size < sizeof(size_t)) {
    return fail_as(APPORTION_INVALID,
                   "apportion_get_stats: set stats.struct_size to sizeof(apportion_stats)");
  }
  return with(client, [&](Client& session) {
    Result<apportion_stats> figures = session.stats();
    if (!figures) return fail(figures.error());
    return hand_over(*figures, stats);
  });
}

APPORTION_API apportion_status apportion_check(apportion_client* client) {
  return with(client, [&](Client& session) {
    const Status checked = session.check();
    return checked ? APPORTION_OK : fail(checked.error());
  });
}

}  // extern "C"
