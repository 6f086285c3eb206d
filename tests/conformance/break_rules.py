#!/usr/bin/env python3
"""CUDASIM_BREAK=n breaks rule n of the simulated driver on purpose: exactly the tests of rule n must fail.

Runs the conformance suite once unbroken and once for each rule that the simulator can break, four at a time (they
mostly wait), and compares sets of test names. A test whose tags name several rules ([rule6][rule38], or [rests9]) may fail with any
of them; each rule must have a test of its own that does fail. Prints TAP.

    break_rules.py SUITE RULES.md [n ...]      only these n
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SUITE_DEADLINE_S = 300
BROKEN_DEADLINE_MS = "4000"  # how long a broken run waits for what may never come


def rules_that_break(table):
    """Numbers in RULES.md whose "break" column says yes."""
    numbers = []
    for line in open(table, encoding="utf-8"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 5 and cells[0].isdigit() and cells[3] == "yes":
            numbers.append(int(cells[0]))
    return numbers


class Suite:
    """The suite's program and what its tests' tags say of rules."""

    def __init__(self, program):
        self.program = program

    def run(self, broken):
        """Runs all tests; the set of (name, tags) that ran, and of names that failed."""
        environment = dict(os.environ, CUDASIM_FORCE="1")
        for variable in ("CUDASIM_BREAK", "APPORTION_LONG", "APPORTION_DRIVER"):
            environment.pop(variable, None)
        environment.pop("APPORTION_SKIP_FILE", None)  # what is skipped here is reported by the suite's own run
        if broken:
            environment["CONFORMANCE_DEADLINE_MS"] = BROKEN_DEADLINE_MS
            environment["CUDASIM_BREAK"] = str(broken)
        folder = tempfile.mkdtemp(prefix="break-rules-")
        try:
            report = os.path.join(folder, "report.xml")
            result = subprocess.run(
                [self.program, "-r", "xml", "-o", report],
                env=environment, timeout=SUITE_DEADLINE_S, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            if result.returncode < 0:
                raise RuntimeError(f"the suite died of signal {-result.returncode}")
            tree = xml.parse(report).getroot()
        finally:
            shutil.rmtree(folder)
        ran, failed = {}, set()
        for case in tree.iter("TestCase"):
            name = case.get("name")
            ran[name] = set(re.findall(r"\[(\w+)\]", case.get("tags", "")))
            if case.find("OverallResult").get("success") != "true":
                failed.add(name)
        return ran, failed


def verdict(number, ran, failed):
    """None where exactly the tests of rule `number` failed, else what is wrong."""
    about = {name for name, tags in ran.items() if f"rule{number}" in tags}
    rests = {name for name, tags in ran.items() if f"rests{number}" in tags}
    must = {name for name in about if len([tag for tag in ran[name] if re.fullmatch(r"rule\d+", tag)]) == 1}
    wrong = [f"does not fail: {name}" for name in sorted(must - failed)]
    wrong += [f"fails too: {name}" for name in sorted(failed - about - rests)]
    if not must:
        wrong.append("no test is about this rule alone")
    return wrong


def main():
    suite = Suite(sys.argv[1])
    numbers = [int(word) for word in sys.argv[3:]] or rules_that_break(sys.argv[2])
    print(f"1..{len(numbers) + 1}")
    ran, failed = suite.run(0)
    print(("not " if failed or not ran else "") + "ok 1 - with no rule broken no test fails")
    for name in sorted(failed):
        print(f"# fails: {name}")
    bad = bool(failed) or not ran

    def one(number):
        try:
            return verdict(number, *suite.run(number))
        except (RuntimeError, subprocess.TimeoutExpired, xml.ParseError) as error:
            return [str(error)]

    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        for index, (number, wrong) in enumerate(zip(numbers, pool.map(one, numbers)), start=2):
            print(("not " if wrong else "") + f"ok {index} - CUDASIM_BREAK={number} fails exactly the tests of rule {number}")
            for line in wrong:
                print(f"# {line}")
            sys.stdout.flush()
            bad = bad or bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
