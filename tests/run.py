#!/usr/bin/env python3
"""Runs the test programs of one or more build folders, two at a time, and counts what they report.

A manifest line is `catch NAME PROGRAM` (Catch2), `tap NAME COMMAND...` (Test Anything Protocol) or
`fuzz NAME PROGRAM CORPUS` (libFuzzer). Every program runs in a process group of its own under a watchdog, with
a temporary folder that must be empty of surprises afterwards. A skipped test counts only if
tests/allowed_skips.txt names it. The last line is `N passed, N failed, N skipped`.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAITING = ("test_faults", "conformance_breaks", "test_broker_daemon", "test_cases")
WATCHDOG_S = 900
print_lock = threading.Lock()


class Outcome:
    def __init__(self, name):
        self.name, self.passed, self.failed, self.skipped, self.output, self.seconds = name, 0, [], [], "", 0.0


def allowed_skips():
    lines = (ROOT / "tests/allowed_skips.txt").read_text().splitlines()
    return {line.split("\t")[0] for line in lines if line.strip() and not line.startswith("#")}


def run_group(command, environment, limit_s):
    """Runs a command in its own process group; kills the whole group when it takes longer than limit_s."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT)
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return -1, output.decode(errors="replace") + f"\nwatchdog: killed after {limit_s} s\n"


def read_junit(path, outcome):
    for case in xml.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed.append(name)
        elif case.find("skipped") is not None:
            outcome.skipped.append((name, case.find("skipped").get("message", "")))
        else:
            outcome.passed += 1


def run_catch(outcome, program, environment, folder, limit_s):
    report, skips = folder / "report.xml", folder / "skips"
    environment["APPORTION_SKIP_FILE"] = str(skips)
    code, outcome.output = run_group([program, "-r", "junit", "-o", str(report)], environment, limit_s)
    try:
        read_junit(report, outcome)
    except (FileNotFoundError, xml.ParseError):
        outcome.failed.append(f"{outcome.name}: no report (exit code {code})")
        return
    if skips.exists():
        for name, reason in {tuple(line.split("\t", 1)) for line in skips.read_text().splitlines()}:
            outcome.skipped.append((name, reason))
            outcome.passed -= 1
    if code != 0 and not outcome.failed:
        outcome.failed.append(f"{outcome.name}: exit code {code}")
    if outcome.failed:
        outcome.output += report.read_text()


def run_tap(outcome, command, environment, limit_s):
    code, outcome.output = run_group(command, environment, limit_s)
    planned, seen = None, 0
    for line in outcome.output.splitlines():
        if plan := re.fullmatch(r"1\.\.(\d+).*", line):
            planned = int(plan.group(1))
        elif result := re.fullmatch(r"(not )?ok\b\s*\d*\s*-?\s*(.*)", line):
            seen += 1
            name, _, directive = result.group(2).partition("# SKIP")
            if result.group(1):
                outcome.failed.append(name)
            elif "# SKIP" in line:
                outcome.skipped.append((name.strip(), directive.strip()))
            else:
                outcome.passed += 1
    if planned != seen or seen == 0:
        outcome.failed.append(f"{outcome.name}: {planned} tests planned, {seen} reported (exit code {code})")
    elif code != 0 and not outcome.failed:
        outcome.failed.append(f"{outcome.name}: exit code {code}")


def run_fuzzer(outcome, program, corpus, environment, folder, limit_s):
    seconds = environment.get("APPORTION_FUZZ_SECONDS", "5")
    command = [program, f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={folder}/",
               str(folder), corpus]
    code, outcome.output = run_group(command, environment, limit_s)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", outcome.output)
    if code == 0 and runs and int(runs.group(1)) > 0:
        outcome.passed = 1
    else:
        outcome.failed.append(f"{outcome.name}: exit code {code}, {runs.group(1) if runs else 0} runs")


def run_one(line, build, limit_s, long):
    kind, name, rest = line.split(" ", 2)
    label = name if build.name == "dev" else f"{name} [{build.name}]"
    outcome, started = Outcome(label), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="apportion-test-") as folder:
        os.chmod(folder, 0o755)
        environment = dict(os.environ, APPORTION_BUILD_DIR=str(build), APPORTION_SOURCE_DIR=str(ROOT), CUDASIM_FORCE="1",
                           TMPDIR=folder)
        for variable in ("APPORTION_SOCKET", "APPORTION_JOB", "APPORTION_CONFIG", "APPORTION_DRIVER", "CUDASIM_DIR"):
            environment.pop(variable, None)
        if long:
            environment["APPORTION_LONG"] = "1"
        folder = pathlib.Path(folder)
        if kind == "catch":
            run_catch(outcome, rest, environment, folder, limit_s)
        elif kind == "tap":
            run_tap(outcome, shlex.split(rest), environment, limit_s)
        else:
            run_fuzzer(outcome, *shlex.split(rest), environment, folder, limit_s)
    outcome.seconds = time.monotonic() - started
    with print_lock:
        if outcome.failed:
            print(outcome.output.rstrip(), flush=True)
        verdict = "FAILED" if outcome.failed else "ok"
        print(f"{verdict:7}{label}: {outcome.passed} passed, {len(outcome.failed)} failed, {len(outcome.skipped)} skipped, "
              f"{outcome.seconds:.1f} s", flush=True)
        for failed in outcome.failed:
            print(f"       failed: {failed}", flush=True)
    return outcome


def closed_folder():
    """Root's tests start processes of other users, which must reach what was built. The folder that keeps them out, or None."""
    if os.geteuid() != 0:
        return None
    return next((folder for folder in (ROOT, *ROOT.parents) if not folder.stat().st_mode & 0o001), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", action="append", required=True, help="tests.list of a build folder")
    parser.add_argument("--long", action="store_true", help="the full kill loops and interleavings")
    parser.add_argument("--only-fuzzers", action="store_true")
    parser.add_argument("names", nargs="*", help="run only these test programs")
    arguments = parser.parse_args()

    jobs, known = [], set()
    for manifest in map(pathlib.Path, arguments.manifest):
        for line in filter(None, manifest.read_text().splitlines()):
            kind, name, _ = line.split(" ", 2)
            known.add(name)
            if (arguments.only_fuzzers and kind != "fuzz") or (arguments.names and name not in arguments.names):
                continue
            jobs.append((line, manifest.parent.resolve()))
    if unknown := set(arguments.names) - known:
        sys.exit(f"run.py: no such test program: {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")

    # Those that mostly wait (for deaths, deadlines, idle helpers) begin first, beside those that compute.
    jobs.sort(key=lambda job: job[0].split(" ", 2)[1] not in WAITING)
    limit_s = WATCHDOG_S * (6 if arguments.long else 1)
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        outcomes = list(pool.map(lambda job: run_one(*job, limit_s, arguments.long), jobs))

    allowed = allowed_skips()
    failed, skipped = sum((o.failed for o in outcomes), []), sum((o.skipped for o in outcomes), [])
    for name, reason in skipped:
        if name not in allowed:
            failed.append(name)
            print(f"failed: skipped without leave (tests/allowed_skips.txt): {name}: {reason}")
    skipped = [skip for skip in skipped if skip[0] in allowed]
    passed = sum(o.passed for o in outcomes)
    if passed + len(failed) == 0:
        failed.append("no test ran")
    for name in failed:
        print(f"failed: {name}")
    if failed and (folder := closed_folder()):
        print(f"note: {folder} is closed to other users, and so to the tests' processes of other uids; move the tree to a "
              f"folder that they can reach, or: chmod o+x {folder}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
