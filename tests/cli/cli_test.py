#!/usr/bin/env python3
"""`apportion` as people type it: help, exit statuses, closed output, status and check beside a broker. Prints TAP."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from broker import PATIENCE_S, Broker, Tap, program, running_broker  # noqa: E402

APPORTION = program("cli/apportion")
VERBS = ("status", "check", "demo")


def shown(ran):
    return f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}"


def shell(script, environment=None):
    return subprocess.run(["/bin/sh", "-c", script, APPORTION], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def command_line(tap):
    def run(*arguments):
        return subprocess.run([APPORTION, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    ran = run("--help")
    tap.check("help lists every verb, examples and exit statuses, on standard output",
              ran.returncode == 0 and ran.stderr == "" and all(f"\n  {verb} " in ran.stdout for verb in VERBS)
              and "Examples:\n" in ran.stdout and "Exit status: 0 done, 1 failed" in ran.stdout, shown(ran))
    for verb in VERBS:
        ran = run(verb, "--help")
        tap.check(f"{verb} --help has examples, and hides what is for tests only",
                  ran.returncode == 0 and f"\n  apportion {verb}" in ran.stdout.partition("Examples:\n")[0] + "\n"
                  + ran.stdout.partition("Examples:")[2] and "--break" not in ran.stdout, shown(ran))
    ran = run("--version")
    tap.check("the version is one line", ran.returncode == 0 and ran.stdout.count("\n") == 1, shown(ran))
    for arguments, line in (
            ((), "apportion: what to do? verbs: status, check, demo; see: apportion --help\n"),
            (("stats",), 'apportion: there is no verb "stats", perhaps "status"; verbs: status, check, demo\n'),
            (("\x1b[2J",), 'apportion: there is no verb "\\x1b[2J"; verbs: status, check, demo\n'),
            (("status", "--jsn"),
             "apportion: The following argument was not expected: --jsn; see: apportion --help\n")):
        ran = run(*arguments)
        tap.check(f"a wrong command line is one line and exit status 2: {ascii(' '.join(arguments))}",
                  (ran.returncode, ran.stdout, ran.stderr) == (2, "", line), shown(ran))
    for arguments, now in ((("run", "--job", "trainer", "--", "true"), "linking libapportion"),
                           (("top", "--help"), "apportion status shows"), (("why", "trainer"), "apportion status shows")):
        ran = run(*arguments)
        tap.check(f"{arguments[0]}, which is planned, is one line that says so and what works now",
                  ran.returncode == 1 and ran.stdout == "" and ran.stderr.count("\n") == 1 and now in ran.stderr
                  and ran.stderr.startswith(f"apportion: apportion {arguments[0]} comes with a later version; "), shown(ran))
    ran = run("demo", "--help")
    tap.check("demo --help explains each verdict",
              all(f"{verdict}, " in ran.stdout.partition("Verdicts: ")[2].replace("\n", " ")
                  for verdict in ("ok", "too little", "nothing", "no context")), shown(ran))


def closed_output(tap, broker):
    line = "apportion: cannot write to standard output\n"
    for what, redirect in (("closed", ">&-"), ("full", ">/dev/full")):
        for words in ("status", "--help"):
            ran = shell(f'exec "$0" {words} {redirect}', broker.environment)
            tap.check(f"{words} says that standard output is {what}", (ran.returncode, ran.stderr) == (1, line),
                      shown(ran))


def asked(broker, path, **fitting):
    """What the broker at `path` says of itself; nothing where it does not answer, or says something else."""
    ran = broker.run(APPORTION, "status", "--json", APPORTION_SOCKET=path)
    answer = json.loads(ran.stdout)["broker"] if ran.returncode == 0 else {}
    return answer if all(answer.get(key) == value for key, value in fitting.items()) else {}


def wait_until(what):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if answer := what():
            return answer
    return {}


def status(tap, broker):
    ran = broker.run(APPORTION, "status")
    lines = ran.stdout.splitlines()
    tap.check("status shows device, pool and jobs",
              ran.returncode == 0 and "(simulated device)" in lines[0] and lines[2].startswith("pool     5 GiB = charged 0 B")
              and any(line.startswith("trainer ") for line in lines) and lines[-1] == "no process holds memory", shown(ran))
    ran = broker.run(APPORTION, "status", "--json")
    tap.check("status --json is one line",
              ran.returncode == 0 and ran.stdout.count("\n") == 1
              and [job["job"] for job in json.loads(ran.stdout)["jobs"]] == ["trainer", "notebook"], shown(ran))
    ran = broker.run(APPORTION, "status", APPORTION_SOCKET=str(broker.folder / "none"))
    tap.check("status without a broker: the paths tried and the command that starts one, exit status 1",
              ran.returncode == 1 and ran.stdout == ""
              and f"tried {broker.folder}/none (not there), where APPORTION_SOCKET points" in ran.stderr
              and ran.stderr.endswith("start one with: apportiond --config apportion.toml\n"), shown(ran))


def whole_config_path(tap, broker):
    """A broker that was started with a relative path, asked from elsewhere."""
    environment = dict(broker.environment, CUDASIM_DIR=broker.device + "/relative", APPORTION_LOG="error",
                       APPORTION_SOCKET=str(broker.folder / "relative.sock"))
    daemon = subprocess.Popen([program("broker/apportiond"), "--config", broker.config.name], env=environment,
                              cwd=broker.folder, stdin=subprocess.DEVNULL)
    answer = wait_until(lambda: asked(broker, environment["APPORTION_SOCKET"]))
    tap.check("status --json names the config by its whole path",
              answer and answer["config"] == str(broker.config.resolve()), answer)
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(PATIENCE_S)


def one_of_several(tap, broker):
    """--device takes how a UUID begins; brokers of other devices are sockets that answer nothing."""
    uuid = asked(broker, broker.environment["APPORTION_SOCKET"])["device"]
    for ran in (broker.run(APPORTION, "status", "--device", uuid[:8].lower(), "--json"),
                broker.run(APPORTION, "status", "--device", uuid, "--json")):
        tap.check("status --device takes a UUID or how it begins",
                  ran.returncode == 0 and json.loads(ran.stdout)["broker"]["device"] == uuid, shown(ran))
    ran = broker.run(APPORTION, "status", "--device", "GPU-0000")
    tap.check("status --device never shows another device because APPORTION_SOCKET leads to it",
              ran.returncode == 1 and ran.stdout == ""
              and f'has device {uuid}, not "GPU-0000"; unset APPORTION_SOCKET' in ran.stderr, shown(ran))
    listeners = []
    for name in ("GPU-0001", "GPU-0002", "GPU-1"):
        folder = broker.folder / "apportion" / name
        folder.mkdir(parents=True)
        listeners.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listeners[-1].bind(str(folder / "broker.sock"))
        listeners[-1].listen(4)
    paths = [f"{broker.folder}/apportion/{name}/broker.sock" for name in ("GPU-0001", "GPU-0002", "GPU-1")]
    for arguments, listed, beginning in (
            ((), paths, "several brokers answer: "), (("--device", "GPU-0"), paths[:2], "several brokers answer: "),
            (("--device", "GPU-7"), paths, 'no broker of a device "GPU-7"; tried ')):
        ran = broker.run(APPORTION, "status", *arguments, APPORTION_SOCKET=None)
        tap.check(f"status {' '.join(arguments)} that fits no one broker lists those there are",
                  ran.returncode == 1 and ran.stderr.startswith("apportion: " + beginning)
                  and ", ".join(listed) in ran.stderr and ran.stderr.count("\n") == 1, shown(ran))
    for listener in listeners:
        listener.close()
    shutil.rmtree(broker.folder / "apportion")


def check(tap, broker):
    device = {"CUDASIM_DIR": broker.device + "/device"}
    ran = broker.run(APPORTION, "check", str(broker.config), **device)
    pid = json.loads(broker.run(APPORTION, "status", "--json").stdout)["broker"]["pid"]
    tap.check("check beside a running broker does not count the broker's own pool as in use",
              ran.returncode == 0 and "by others, now" not in ran.stdout and "warning" not in ran.stdout
              and f"A broker (pid {pid}) serves this device now; the 5 GiB that it and its clients hold" in ran.stdout,
              shown(ran))
    ran = broker.run(APPORTION, "check", str(broker.config), APPORTION_SOCKET=str(broker.folder / "none"), **device)
    tap.check("check that cannot ask the broker counts what is in use, and warns",
              ran.returncode == 0 and "by others, now" in ran.stdout and "others use 5 GiB" in ran.stdout, shown(ran))
    ran = broker.run(APPORTION, "check", str(broker.config), CUDASIM_DIR=broker.device + "/other")
    tap.check("check of another device is not told about this broker",
              ran.returncode == 0 and "A broker" not in ran.stdout and "in use" not in ran.stdout, shown(ran))
    bad = broker.folder / "bad.toml"
    bad.write_text(broker.config.read_text() + '\n[jobs.more]\nshare = "0.9"\n')
    ran = broker.run(APPORTION, "check", str(bad), **device)
    tap.check("check of a config that a broker would refuse: tables, the reason with file and line, exit status 1",
              ran.returncode == 1 and "JOB " in ran.stdout
              and ran.stderr == f"apportion: {bad}:13: the guarantees trainer 2.5 GiB + notebook 1 GiB + more 4.5 GiB = "
              "8 GiB, above the pool of 5 GiB by 3 GiB (96 chunks); lower one of them\n", shown(ran))
    tap.check("and each reason once", (ran.stdout + ran.stderr).count("the guarantees trainer") == 1, shown(ran))
    ran = broker.run(APPORTION, "check", str(broker.folder / "none.toml"), **device)
    tap.check("check of a file that is not there never suggests an option that check does not have",
              ran.returncode == 1 and "none.toml" in ran.stderr and "name one with apportion check FILE" in ran.stderr
              and "--config" not in ran.stderr and ran.stderr.count("\n") == 1, shown(ran))
    ran = shell(f'ulimit -n 300; exec "$0" check {broker.config}', dict(broker.environment, **device))
    tap.check("check warns where the limit of open files is too low for the pool",
              ran.returncode == 0 and "warning: " in ran.stdout
              and "a pool of 160 chunks of 32 MiB needs 416 open files, and the hard limit is 300" in ran.stdout, shown(ran))
    before = sorted(os.listdir(broker.folder))
    tap.check("check leaves no file behind", before == ["apportion.toml", "bad.toml", "broker.sock"], before)


def closed_streams_of_the_broker(tap, broker):
    """Its keeper's and its own sockets must not get the numbers 0 to 2: a log line, or a new broker, would take them."""
    path = str(broker.folder / "mute.sock")
    environment = dict(broker.environment, CUDASIM_DIR=broker.device + "/mute", APPORTION_SOCKET=path)
    script = f'exec {program("broker/apportiond")} --config {broker.config} <&- >&- 2>&-'
    mute = subprocess.Popen(["/bin/sh", "-c", script], env=environment)
    first = wait_until(lambda: asked(broker, path))
    streams = {process: [os.readlink(f"/proc/{first[process]}/fd/{fd}") for fd in range(3)]
               for process in ("pid", "keeper_pid")} if first else {}
    tap.check("apportiond with closed streams has nothing else in their places",
              first and all(place == ["/dev/null"] * 3 for place in streams.values()), streams)
    if first:
        os.kill(first["pid"], signal.SIGKILL)
    second = wait_until(lambda: asked(broker, path, restarts=1))
    tap.check("and starts a broker anew after a crash", second and second["keeper_pid"] == mute.pid, second)
    mute.send_signal(signal.SIGTERM)
    tap.check("and stops", (code := mute.wait(PATIENCE_S)) == 0, code)


def daemon_command_line(tap):
    for arguments, line in (
            (("--cnfig",), "apportiond: The following argument was not expected: --cnfig; see: apportiond --help\n"),
            (("--json",), "apportiond: --json requires --probe; see: apportiond --help\n")):
        ran = subprocess.run([program("broker/apportiond"), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=PATIENCE_S, check=False)
        tap.check(f"apportiond: a wrong command line is one line and exit status 2: {' '.join(arguments)}",
                  (ran.returncode, ran.stdout, ran.stderr) == (2, "", line), shown(ran))


def own_folder(tap):
    """A broker at a path like the default one, with an unknown APPORTION_LOG."""
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        broker = Broker(pathlib.Path(folder))
        place = pathlib.Path(folder) / "apportion/GPU-1"
        broker.environment.update(APPORTION_SOCKET=str(place / "broker.sock"), APPORTION_LOG="loud")
        try:
            said = broker.start()
            tap.check("an unknown APPORTION_LOG is told once", said.count("APPORTION_LOG=loud") == 1, said)
            tap.check("the broker's folder is there while it serves", place.is_dir())
            broker.stop()
            tap.check("a clean stop takes the socket, and the device's folder stays",
                      place.is_dir() and not (place / "broker.sock").exists(), os.listdir(place.parent))
        finally:
            broker.close()


def main():
    tap = Tap()
    command_line(tap)
    daemon_command_line(tap)
    own_folder(tap)
    with running_broker() as broker:
        status(tap, broker)
        closed_output(tap, broker)
        check(tap, broker)
        one_of_several(tap, broker)
        whole_config_path(tap, broker)
        closed_streams_of_the_broker(tap, broker)
        tap.check("the broker stops cleanly", (code := broker.stop()) == 0, code)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
