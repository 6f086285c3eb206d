#!/usr/bin/env python3
"""The bench from end to end, briefly: every gate gives its figures, in a table and in JSON. Judges no time. Prints TAP."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from broker import PATIENCE_S, Tap, program  # noqa: E402

BENCH = program("bench/apportion_bench")
KEYS = {"id", "trace", "what", "ratio", "q25", "q75", "allowed", "verdict"}
# id -> how many figures of it a brief run has: 3 traces, one of them the adversary's.
FIGURES = {"A8": 3 * 2 * 3, "M1": 2 * 2, "M3": 2, "M7": 3 * 2, "A1": 2, "A2": 2, "B1": 2, "B3": 1, "B5": 3}
SAMPLE = str(ROOT / "tests/data/traces/dl_fixed_seq.csv")


def bench(*arguments):
    return subprocess.run([BENCH, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=4 * PATIENCE_S, check=False)


def shown(ran):
    return f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}"


def whole_run(tap, folder):
    ran = bench("--brief", "--rounds", "1", "--json", str(folder / "out.json"))
    tap.check("a brief run of every gate ends with status 0 and says nothing on standard error",
              (ran.returncode, ran.stderr) == (0, ""), shown(ran))
    written = json.loads((folder / "out.json").read_text())
    gates = written["gates"]
    count = {id: sum(figure["id"] == id for figure in gates) for id in {figure["id"] for figure in gates}}
    tap.check("every gate has its figures", count == FIGURES, count)
    tap.check("every figure has its keys, ordered quartiles and a verdict of the three",
              all(KEYS <= figure.keys() and figure["q25"] <= figure["ratio"] <= figure["q75"]
                  and figure["verdict"] in ("ok", "OVER", "NOISY") for figure in gates), gates)
    timed = [figure for figure in gates if not figure["exact"]]
    tap.check("every timed figure says what both sides took, and their ratio is its ratio",
              len(timed) == 8 and all(abs(ours / peer / figure["ratio"] - 1) < 1e-6 for figure in timed
                                      for ours in [v for k, v in figure.items() if k.startswith("ours_")]
                                      for peer in [v for k, v in figure.items() if k.startswith("peer_")]), timed)
    zero = [figure for figure in gates if figure["id"] in ("A8", "B5") and figure["exact"]]
    tap.check("what must be 0 is 0: calls and allocations of warm pairs, the start race's losers",
              len(zero) == 20 and all((figure["ratio"], figure["verdict"]) == (0, "ok") for figure in zero), zero)
    lines = ran.stdout.splitlines()
    tap.check("the table has a line for each of them",
              all(sum(line.split(" ")[0] == id for line in lines) == many for id, many in FIGURES.items()), shown(ran))
    plain = {figure["what"]: figure["value"] for figure in written["figures"]}
    tap.check("info and a broker at rest are printed beside",
              "apportion_get_info, one thread" in plain and plain["both, 64 clients, proportional"] > 0
              and "broker, 64 clients" in plain, plain)
    tap.check("the host is described without its name",
              set(written["host"]) == {"compiler", "build", "processor", "cores", "rounds", "seed", "brief"},
              written["host"])


def command_line(tap, folder):
    bad = folder / "bad.csv"
    bad.write_text("Thread,Time,Action,Pointer,Size,Stream\n0,t,allocate,0x1,much,0\n")
    for arguments, line in (
            (("A77",), None),
            (("--rounds", "0"), None),
            (("--trace", str(bad)), f"bench: {bad}:2: not a line of an RMM log: 0,t,allocate,0x1,much,0\n"),
            (("--trace", "/nonexistent.csv"), "bench: no trace at /nonexistent.csv\n"),
            (("M3", "--brief", "--json", "/nonexistent/out"), "bench: cannot write /nonexistent/out\n")):
        ran = bench(*arguments)
        tap.check(f"a wrong command line is one line and exit status 2: {' '.join(arguments[:1])}",
                  ran.returncode == 2 and ran.stderr.count("\n") == 1 and ran.stderr.startswith("bench: ")
                  and (line is None or ran.stderr == line), shown(ran))
    ran = bench("M1", "--trace", SAMPLE)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("M1 ")]
    tap.check("a log of RMM's replays under the gate that is named, and under no other",
              ran.returncode == 0 and len(lines) == 2 and all(" dl_fixed_seq " in line for line in lines)
              and "A1 " not in ran.stdout, shown(ran))
    ran = bench("--list")
    tap.check("--list names every gate", all(f"{id}\t" in ran.stdout for id in (*FIGURES, "info", "rest")), shown(ran))


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        whole_run(tap, pathlib.Path(folder))
        command_line(tap, pathlib.Path(folder))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
