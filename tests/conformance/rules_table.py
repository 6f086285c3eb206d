#!/usr/bin/env python3
"""Checks RULES.md against the names of the conformance tests. Prints TAP.

    rules_table.py SUITE RULES.md
"""
import re
import subprocess
import sys

RULES = 43
HEADINGS = ["rule", "what holds", "how it is tested", "broken", "tests"]


def names_of(program):
    """Names of all tests, one a line, from Catch2 2.13 or 3."""
    old = subprocess.run([program, "--list-test-names-only"], capture_output=True, text=True, check=False)
    if old.returncode >= 0 and any(line.startswith("rule ") for line in old.stdout.splitlines()):
        return {line.strip() for line in old.stdout.splitlines() if line.strip()}
    new = subprocess.run([program, "--list-tests", "--verbosity", "quiet"], capture_output=True, text=True, check=False)
    return {line.strip() for line in new.stdout.splitlines() if line.strip()}


def rows_of(table):
    """Rows of the table by rule number; the headings must be as they are known here."""
    rows, headings = {}, None
    for line in open(table, encoding="utf-8"):
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if headings is None:
            headings = cells
        elif cells[0].isdigit():
            rows[int(cells[0])] = dict(zip(HEADINGS, cells))
    return rows if headings == HEADINGS else {}


def main():
    names, rows = names_of(sys.argv[1]), rows_of(sys.argv[2])
    results = [(f"the table has all {RULES} rules, in order", [] if list(rows) == list(range(1, RULES + 1)) else
                [f"it has {list(rows)}"])]
    for number, row in rows.items():
        prefix = f"rule {number}: "
        tests = {name for name in names if name.startswith(prefix)}
        listed = set() if row["tests"] == "none" else {prefix + name for name in row["tests"].split("<br>")}
        wrong = [f"not in the table: {name}" for name in sorted(tests - listed)]
        wrong += [f"no such test: {name}" for name in sorted(listed - tests)]
        if not listed and row["how it is tested"] == "tested":
            wrong.append("no test, and no reason why")
        results.append((f"the table lists the tests of rule {number}", wrong))
    stray = sorted(name for name in names if re.match(r"rule \d+", name) and
                   int(re.match(r"rule (\d+)", name)[1]) not in rows)
    results.append(("every test named after a rule has a rule in the table", stray))
    invariants = {f"invariant {letter}" for letter in "abc"}
    missing = sorted(prefix for prefix in invariants if not any(name.startswith(prefix + ":") for name in names))
    results.append(("each of the three invariants has a test", missing))
    print(f"1..{len(results)}")
    for index, (what, wrong) in enumerate(results, start=1):
        print(("not " if wrong else "") + f"ok {index} - {what}")
        for line in wrong:
            print(f"# {line}")
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == "__main__":
    sys.exit(main())
