#!/usr/bin/env python3
"""`apportion demo` as people run it: figures, JSON, --break, and that nothing stays behind. Prints TAP."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from broker import Tap, program  # noqa: E402

APPORTION = program("cli/apportion")
PATIENCE_S = 300
GIB = 1 << 30
GUARANTEE = 584 * (32 << 20)  # a quarter of 2339 chunks, in whole ones


def demo(*arguments):
    return subprocess.run([APPORTION, "demo", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)


def shown(ran):
    return f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}"


def fair(racers):
    return len(racers) == 4 and all(
        racer["ok"] and racer["told_bytes"] == racer["guarantee_bytes"] == racer["limit_bytes"] == GUARANTEE
        and racer["wanted_bytes"] == racer["got_bytes"] == GUARANTEE * 3 // 4 // 512 * 512 for racer in racers)


def figures(tap):
    ran = demo("--json")
    answer = json.loads(ran.stdout) if ran.returncode == 0 else {}
    tap.check("--json is one line on standard output and nothing else",
              ran.returncode == 0 and ran.stdout.count("\n") == 1 and ran.stderr == "", shown(ran))
    tap.check("through the broker each is told 18.25 GiB and gets 13.69", fair(answer.get("broker", [])), shown(ran))
    bare = answer.get("bare", [])
    tap.check("bare, one gets all it wants and at least two get nothing",
              sorted(racer["ok"] for racer in bare) == [False, False, False, True]
              and sum(not racer["got_bytes"] for racer in bare) >= 2, shown(ran))
    tap.check("no byte is mapped by two programs", answer.get("overlap_bytes") == 0, shown(ran))
    tap.check("device and pool are those of an 80 GiB device",
              (answer.get("device_bytes"), answer.get("pool_bytes")) == (80 * GIB, 2339 * (32 << 20)), shown(ran))
    ran = demo("--orders", "all", "--json")
    answer = json.loads(ran.stdout) if ran.returncode == 0 else {}
    tap.check("in all 24 start orders the result is the same",
              (answer.get("orders"), answer.get("distinct_results"), answer.get("overlap_bytes")) == (24, 1, 0)
              and fair(answer["broker"]), shown(ran))
    ran = demo("--break", "overlap", "--json")
    tap.check("--break overlap: a chunk passed on behind the broker's back is seen",
              ran.returncode == 0 and json.loads(ran.stdout)["overlap_bytes"] > 0, shown(ran))
    ran = demo("--clients", "2", "--device", "sim:8GiB", "--seed", "7")
    tap.check("the table says that the device is simulated, and has a line of conclusion",
              ran.returncode == 0 and "simulated device of 8 GiB" in ran.stdout
              and ran.stdout.splitlines()[-1].endswith(
                  "through the broker, 2 of 2, with 1 result in 1 order and 0 B mapped by two programs at once."),
              shown(ran))
    ran = demo("--clients", "8", "--device", "sim:24GiB", "--json")
    racers = json.loads(ran.stdout)["broker"] if ran.returncode == 0 else []
    tap.check("eight programs on a smaller device have room for their contexts, and each gets its share",
              len(racers) == 8 and all(racer["ok"] and racer["told_bytes"] == racers[0]["told_bytes"] for racer in racers),
              shown(ran))
    ran = demo("--clients", "64", "--device", "sim:8GiB")
    tap.check("more programs than a device has room for: the broker's line says why, and nothing is raced",
              ran.returncode == 1 and ran.stdout == "" and "not one chunk of 32MiB is left: device 8 GiB" in ran.stderr
              and ran.stderr.count("\n") == 1,
              shown(ran))
    tap.check("that line cites the demo's config, not a file that is gone",
              "the demo's config ([broker]): broker.pool" in ran.stderr and "/dev/shm" not in ran.stderr, shown(ran))


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment_of(pid):
    pairs = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def broker_of(process):
    """(pid of the demo's keeper, folder of the demo), once its broker runs and a race is on."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        for child in children(process.pid):
            try:
                if os.readlink(f"/proc/{child}/exe").endswith("/apportiond") and len(children(process.pid)) > 1:
                    return child, pathlib.Path(environment_of(child)["CUDASIM_DIR"]).parent
            except (FileNotFoundError, KeyError, PermissionError):
                continue  # it has not become the broker yet, or is gone
    return None, None


def interrupted(tap):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([APPORTION, "demo", "--orders", "all"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        keeper, folder = broker_of(process)
        was_there = folder is not None and folder.is_dir()
        started = children(process.pid) + (children(keeper) if keeper else [])
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_S)
        left = [pid for pid in started if pathlib.Path(f"/proc/{pid}").exists()]
        tap.check(f"{number.name} in the middle ends the demo, and its broker, racers and folder are gone",
                  was_there and (process.returncode, out, error) == (1, "", "apportion: interrupted\n")
                  and not folder.exists() and not left,
                  f"folder {folder}, left {left}, exit status {process.returncode}\n{out}{error}")


def main():
    tap = Tap()
    figures(tap)
    interrupted(tap)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
