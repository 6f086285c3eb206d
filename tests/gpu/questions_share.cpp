// Questions about file descriptors between processes: 3, 6, 15, 17.
#include <poll.h>

#include "question.hpp"

namespace apportion::conformance {

TEST_CASE("question 3: an fd alone, exporter killed, persistence as found", "[question]") {
  expected("importable with its contents while persistence mode is on");
  Scene scene({.observer = false});
  OwnedFd fd;
  {
    Peer exporter = scene.with_context();
    const PeerChunk chunk = exporter.mapped_chunk(kChunk);
    REQUIRE(exporter.write_word(chunk.address + kChunk - 8, 3333) == kOk);
    fd = exporter.exported(chunk.handle);
    exporter.kill();
  }
  Peer importer = scene.with_context();
  Reply persistence;
  const Answer known = importer.call(Op::nvml_persistence, {}, &persistence);
  const std::string mode = !known.ok() ? "unknown" : persistence.value[0] == 1 ? "on" : "off";
  std::uint64_t handle = 0;
  const Answer answer = importer.import_fd(fd, &handle);
  std::string contents = "no contents";
  if (answer.ok())
    contents = importer.word(importer.map_handle(handle, kChunk).address + kChunk - 8) == 3333
                   ? "contents intact"
                   : "contents lost";
  seen(joined({"persistence mode " + mode, told("import", answer), contents}));
}

TEST_CASE("question 6: export and import in one process; two imports of one fd; re-export of an import",
          "[question]") {
  expected("all OK; whether handle values repeat is open");
  Scene scene({.observer = false});
  Peer peer = scene.started();
  Peer other = scene.started();
  std::uint64_t made = 0;
  std::uint64_t own = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t number = 0;
  REQUIRE(peer.create(kChunk, &made) == kOk);
  const OwnedFd fd = peer.exported(made);
  const Answer own_import = peer.import_fd(fd, &own);
  const Answer first_import = other.import_fd(fd, &first, &number);
  const Answer second_import = other.import_number(static_cast<int>(number), &second);
  OwnedFd again;
  const Answer re_export = other.export_fd(first, &again);
  seen(
      joined({told("own import", own_import), own == made ? "same handle value" : "another handle value",
              told("first import", first_import), told("second import", second_import),
              first == second ? "same handle value" : "another handle value", told("re-export", re_export)}));
}

TEST_CASE("question 15: import of a chunk's fd by another uid; cuIpcOpen by another uid", "[question]") {
  expected("the import is OK (an fd is a bearer capability); the IPC open is refused");
  Scene scene({.observer = false});
  Peer owner = scene.with_context();
  constexpr uid_t kNobody = 65534;
  Peer stranger = scene.peer({.uid = kNobody});
  if (!stranger.usable()) APPORTION_SKIP("this user may not start a process of another uid");
  const Answer started = stranger.init();
  if (!started.ok()) {
    seen(told("cuInit of the other uid", started));
    return;
  }
  const PeerChunk chunk = owner.mapped_chunk(kChunk);
  std::uint64_t handle = 0;
  std::uint64_t plain = 0;
  std::uint64_t opened = 0;
  std::string blob;
  REQUIRE(owner.mem_alloc(kChunk, &plain) == kOk);
  REQUIRE(owner.ipc_get(plain, &blob) == kOk);
  const Answer import = stranger.import_fd(owner.exported(chunk.handle), &handle);
  const Answer context = stranger.context();
  const Answer open = stranger.ipc_open(blob, &opened);
  seen(joined({told("import", import), told("context", context), told("IPC open", open)}));
}

TEST_CASE("question 17: do export fds poll as hung up or in error?", "[question]") {
  expected("open: it decides whether an event loop may hold them");
  Scene scene({.observer = false});
  Peer exporter = scene.started();
  std::uint64_t handle = 0;
  REQUIRE(exporter.create(kChunk, &handle) == kOk);
  const OwnedFd fd = exporter.exported(handle);
  const auto polled = [&] {
    pollfd entry{fd.get(), POLLIN | POLLOUT, 0};
    const int count = ::poll(&entry, 1, 0);
    std::string text = count == 0 ? "nothing" : "";
    if ((entry.revents & POLLIN) != 0) text += "IN ";
    if ((entry.revents & POLLOUT) != 0) text += "OUT ";
    if ((entry.revents & POLLERR) != 0) text += "ERR ";
    if ((entry.revents & POLLHUP) != 0) text += "HUP ";
    if ((entry.revents & POLLNVAL) != 0) text += "NVAL ";
    return text;
  };
  const std::string alive = polled();
  exporter.kill();
  seen(joined({"exporter alive: " + alive, "exporter dead: " + polled()}));
}

}  // namespace apportion::conformance
