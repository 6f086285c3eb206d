#!/usr/bin/env python3
"""docs/faq.md against the sources and against what the programs really say; links in the docs. Prints TAP.

A heading of faq.md that is code is a message; `<...>` stands for what differs. Every message must occur in the string
literals of one source file. Most are also made to happen, and what was said must fit the heading.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from broker import BUILD, CONFIG, PATIENCE_S, Tap, program, running_broker  # noqa: E402

SOURCES = ("shm", "config", "gpu", "broker", "libclient", "cli")
LITERAL = re.compile(r'R"\((?P<raw>.*?)\)"|"(?P<plain>(?:[^"\\\n]|\\.)*)"', re.S)
APPORTION, DAEMON = program("cli/apportion"), program("broker/apportiond")
CLIENT = (sys.executable, str(ROOT / "tests/support/client.py"))

# What this test does not make happen, and why; unit tests beside the sources do where that is possible.
ONLY_IN_SOURCES = {
    "cannot load NVML": "needs a driver without NVML",
    "no place for the broker's socket": "needs a user that is not root",
    "uid <uid> has <n> sessions already": "tests/unit/broker",
    "the other side speaks protocol": "tests/unit/shm",
    "which this process cannot use": "needs a second device",
    "the device gave no memory": "tests/unit/broker",
    "the memory could not be overwritten first": "tests/faults",
    "which works within one user only": "tests/faults",
    "which works within one PID namespace only": "tests/unit/broker",
    "could not make a slab": "tests/faults",
    "lost with all contents": "tests/faults",
    "did not answer in time": "takes longer than a test should",
    "a stream is being captured": "tests/unit/libclient",
    "the simulated device needs": "tests/unit/gpu; needs a small file system",
    "keeper   gone": "tests/unit/cli",
}


def messages():
    found = re.findall(r"^### (?:`` ?(.+?) ?``|`(.+?)`)$", (ROOT / "docs/faq.md").read_text(), re.M)
    return [first or second for first, second in found]


def literals_of(text):
    """The string literals of a source, neighbours joined, as the compiler joins them."""
    joined, end = [], None
    for match in LITERAL.finditer(text):
        raw = match.group("raw")
        piece = raw if raw is not None else match.group("plain").replace('\\"', '"').replace("\\\\", "\\")
        if end is not None and not text[end:match.start()].strip():
            joined[-1] += piece
        else:
            joined.append(piece)
        end = match.end()
    return joined


def source_literals():
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".cpp", ".hpp")]
    return {path: literals_of(path.read_text()) for path in files}


def fragments(message):
    return [part for part in re.split(r"<[^>]*>", message) if re.search(r"\w", part)]


def printed(part, literals):
    """Whether one literal holds the text, or the end of one, whole ones and the start of another make it up."""
    if any(part in literal for literal in literals):
        return True
    return any(any(literal.endswith(part[:cut]) for literal in literals) and begins(part[cut:], literals)
               for cut in range(3, len(part) - 1))


def begins(part, literals):
    if any(literal.startswith(part) for literal in literals):
        return True
    return any(len(literal) > 1 and part.startswith(literal) and begins(part[len(literal):], literals)
               for literal in literals)


def found_in(message, sources):
    return [str(path.relative_to(ROOT)) for path, literals in sources.items()
            if all(printed(part.strip(), literals) for part in fragments(message))]


def pattern(message):
    return re.compile(".+?".join(re.escape(part) for part in re.split(r"<[^>]*>", message)))


class Provoked:
    """Collects what the programs said, and which headings it fits."""

    def __init__(self, tap, all_messages):
        self.tap, self.messages, self.seen = tap, all_messages, set()

    def said(self, what, text):
        lines = [line for line in text.splitlines() if line]
        fits = [message for message in self.messages if any(pattern(message).search(line) for line in lines)]
        self.seen.update(fits)
        self.tap.check(f"faq.md knows what is said about {what}", fits, text or "nothing was said")


def config(device="sim:8GiB", pool='pool = "5GiB"', jobs='[jobs.a]\nshare = "0.5"'):
    return f'[broker]\ndevice = "{device}"\n{pool}\n{jobs}\n'


def bad_configs(provoked, broker):
    def check(text, *arguments, **variables):
        path = broker.folder / "other.toml"
        path.write_text(text)
        ran = broker.run(APPORTION, "check", *arguments, str(path), CUDASIM_DIR=broker.device + "/other", **variables)
        return ran.stderr + ran.stdout

    provoked.said("an unknown key", check(config(jobs='[jobs.a]\nshar = "0.5"')))
    provoked.said("a size that is none", check(config(jobs="[jobs.a]\nguarantee = 10")))
    provoked.said("too many guarantees", check(config(jobs='[jobs.a]\nshare = "0.6"\n[jobs.b]\nshare = "0.5"')))
    provoked.said("a pool as large as the device", check(config(pool='pool = "8GiB"')))
    provoked.said("a limit above the pool", check(config(jobs='[jobs.a]\nlimit = "100GiB"')))
    provoked.said("a config without jobs", check(config(jobs="")))
    provoked.said("a device that does not exist",
                  check(config(), "--device", "7", APPORTION_DRIVER=program("cudasim/libcuda.so.1"), CUDASIM_FORCE="1"))
    provoked.said("a machine without a driver", check(config(device="0"), APPORTION_DRIVER="/nowhere/libcuda.so.1"))
    provoked.said("a driver that is none", check(config(device="0"), APPORTION_DRIVER="libm.so.6"))
    # Simulated at 8 GiB by the broker that runs on it; asked through a socket where nobody answers.
    path = broker.folder / "other.toml"
    path.write_text(config())
    device = {"CUDASIM_DIR": broker.device + "/device", "APPORTION_SOCKET": "/nowhere"}
    provoked.said("a device that others use", broker.run(APPORTION, "check", str(path), **device).stdout)
    path.write_text(config(device="sim:16GiB"))
    for what, folder in (("below none", broker.device + "/none/deeper"), ("on no tmpfs", "/nonexistent-device")):
        provoked.said(f"a simulated device's folder {what}",
                      broker.run(APPORTION, "check", str(path), CUDASIM_DIR=folder, APPORTION_SOCKET="/nowhere").stderr)
    provoked.said("a simulated device of another size", broker.run(APPORTION, "check", str(path), **device).stderr)
    path.unlink()


def bad_starts(provoked, broker):
    def start(text=None, limits="", **variables):
        path = broker.folder / "other.toml"
        if text is not None:
            path.write_text(text)
        environment = dict(broker.environment, CUDASIM_DIR=broker.device + "/other", APPORTION_LOG="error", **variables)
        return subprocess.run(["/bin/sh", "-c", f'{limits} exec "$0" --config "$1"', DAEMON, str(path)], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False).stderr

    provoked.said("a config that is not there", start())
    provoked.said("a second broker of the device", second_broker(broker))
    provoked.said("a second broker at the socket", start(config()))
    occupied = broker.folder / "occupied"
    occupied.write_text("")
    provoked.said("a file in the socket's place", start(config(), APPORTION_SOCKET=str(occupied)))
    opened = broker.folder / "open"
    opened.mkdir()
    opened.chmod(0o777)
    provoked.said("a folder that others can write to", start(config(), APPORTION_SOCKET=str(opened / "broker.sock")))
    provoked.said("a limit of open files", start(config(pool='pool = "5GiB"\nchunk = "2MiB"'), "ulimit -n 2000;",
                                                 APPORTION_SOCKET=str(broker.folder / "few.sock")))


def second_broker(broker):
    environment = dict(broker.environment, CUDASIM_DIR=broker.device + "/device", APPORTION_LOG="error",
                       APPORTION_SOCKET=str(broker.folder / "second.sock"))
    return subprocess.run([DAEMON, "--config", str(broker.config)], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False).stderr


def bad_attaches(provoked, broker):
    def client(*actions, **variables):
        return broker.run(*CLIENT, *actions, APPORTION_BUILD_DIR=str(BUILD), **variables).stderr

    provoked.said("a missing broker", client(APPORTION_JOB="trainer", APPORTION_SOCKET=None, XDG_RUNTIME_DIR="/nowhere"))
    provoked.said("a missing socket", client(APPORTION_JOB="trainer", APPORTION_SOCKET="/nowhere/broker.sock"))
    provoked.said("a relative socket", client(APPORTION_JOB="trainer", APPORTION_SOCKET="broker.sock"))
    provoked.said("a long socket", client(APPORTION_JOB="trainer", APPORTION_SOCKET="/" + "x" * 120))
    provoked.said("a socket that is a file", client(APPORTION_JOB="trainer", APPORTION_SOCKET=str(broker.config)))
    provoked.said("a job that is not in the config", client(APPORTION_JOB="nobody"))
    provoked.said("no job", client())
    provoked.said("a user who may not join", client(APPORTION_JOB="closed"))
    provoked.said("many sessions of a process", client(*["attach"] * 64, APPORTION_JOB="trainer"))
    listeners = []
    for name in ("GPU-1", "GPU-2"):
        folder = broker.folder / "apportion" / name
        folder.mkdir(parents=True)
        listeners.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listeners[-1].bind(str(folder / "broker.sock"))
        listeners[-1].listen(4)
    provoked.said("two brokers", broker.run(APPORTION, "status", APPORTION_SOCKET=None).stderr)
    other = broker.run(APPORTION, "status", "--device", "GPU-3", APPORTION_SOCKET=None)
    provoked.said("a device without a broker", other.stderr)
    provoked.said("the broker of another device", broker.run(APPORTION, "status", "--device", "GPU-0000").stderr)
    for listener in listeners:
        listener.close()


def bad_requests(provoked, broker):
    def client(*actions, job="trainer"):
        return broker.run(*CLIENT, *actions, APPORTION_BUILD_DIR=str(BUILD), APPORTION_JOB=job).stderr

    provoked.said("0 bytes", client("allocate:0"))
    provoked.said("more than the device", client("allocate:9999999999999"))
    provoked.said("a block freed twice", client("allocate:1000", "free:0", "free:0"))
    provoked.said("a forked child", client("fork", "allocate:1000"))
    provoked.said("a session that has ended", client("detach", "allocate:1000"))
    provoked.said("a request above the limit", client(f"allocate:{3 << 30}"))
    with Holder(broker, "trainer", 1 << 20):
        provoked.said("a burst into others' guarantees", client(f"allocate:{3 << 30}", job="notebook"))
    with Holder(broker, "notebook", 4000 << 20):
        provoked.said("a guarantee that others hold", client(f"allocate:{2500 << 20}"))


class Holder:
    """A process that holds `size` bytes, then asks for as much again when it is told to go on."""

    def __init__(self, broker, job, size, *then):
        environment = dict(broker.environment, APPORTION_BUILD_DIR=str(BUILD), APPORTION_JOB=job)
        self.process = subprocess.Popen([*CLIENT, f"allocate:{size}", "ready", *then], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(self.process.communicate()[1])
        return self

    def go_on(self):
        return self.process.communicate("\n", PATIENCE_S)[1]

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.communicate("\n", PATIENCE_S)


def a_crash(provoked, broker):
    """Last: the broker is closed afterwards."""
    with Holder(broker, "notebook", 64 << 20, f"allocate:{1 << 30}") as holder, \
            Holder(broker, "trainer", 1 << 20), Holder(broker, "trainer", 1 << 20):  # both outlive it
        pid = json.loads(broker.run(APPORTION, "status", "--json").stdout)["broker"]["pid"]
        death = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        subprocess.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=PATIENCE_S, check=True)
        os.close(death)
        provoked.said("a broker that crashed", holder.go_on())
        # A new broker may not listen yet: the socket waits with the keeper, so that this one waits with it.
        provoked.said("the broker after it", broker.run(*CLIENT, f"allocate:{1 << 20}", APPORTION_BUILD_DIR=str(BUILD),
                                                        APPORTION_JOB="trainer").stderr)
        provoked.said("a closed broker in status", broker.run(APPORTION, "status").stdout)


def the_command_line(provoked, broker):
    ran = subprocess.run(["/bin/sh", "-c", 'exec "$0" status >/dev/full', APPORTION], env=broker.environment,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    provoked.said("a full disk", ran.stderr)
    provoked.said("a verb of a later version", broker.run(APPORTION, "run", "--", "true").stderr)
    provoked.said("a demo without room", broker.run(APPORTION, "demo", "--clients", "64", "--device", "sim:8GiB").stderr)
    alone = broker.folder / "apportion-alone"
    alone.write_bytes(pathlib.Path(APPORTION).read_bytes())
    alone.chmod(0o755)
    provoked.said("an installation with parts missing", broker.run(str(alone), "demo").stderr)


def links(tap):
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
                 *sorted((ROOT / "examples").rglob("*.md"))]:
        dead = [target for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text())
                if "://" not in target and not (page.parent / target).exists()]
        tap.check(f"every link of {page.relative_to(ROOT)} leads somewhere", not dead, dead)


def main():
    tap, all_messages, sources = Tap(), messages(), source_literals()
    tap.check("faq.md has messages", len(all_messages) > 30, len(all_messages))
    for message in all_messages:
        tap.check(f"in the sources: {message}", found_in(message, sources), fragments(message))
    tap.check("a message that nobody prints is noticed", not found_in("no broker to talk with; tried <paths>", sources))
    provoked = Provoked(tap, all_messages)
    with running_broker(CONFIG + '\n[jobs.closed]\nlimit = "1GiB"\nusers = [54321]\n') as broker:
        bad_configs(provoked, broker)
        bad_starts(provoked, broker)
        bad_attaches(provoked, broker)
        bad_requests(provoked, broker)
        the_command_line(provoked, broker)
        a_crash(provoked, broker)
    for message in all_messages:
        if not any(key in message for key in ONLY_IN_SOURCES):
            tap.check(f"was made to happen: {message}", message in provoked.seen)
    tap.check("what is not made to happen is in faq.md",
              all(any(key in message for message in all_messages) for key in ONLY_IN_SOURCES))
    lines = len((ROOT / "README.md").read_text().splitlines())
    tap.check("README.md has at most 60 lines", lines <= 60, lines)
    links(tap)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
