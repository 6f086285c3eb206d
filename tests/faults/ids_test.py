#!/usr/bin/env python3
"""docs/faults.md and docs/cases.md against the tests' names: whatever a page calls tested is a test. Prints TAP.

A test is named in backticks by the beginning of its name. Each row with a name must have one that carries the row's id,
or a name without any id; each id that a test's name begins with must have a row.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("docs/faults.md", "docs/cases.md")
# Ids that the issues of the first version promise as tests.
PROMISED = ("R1 R2 R4 R6 R7 R9 R11 R14 C8 C14 C21 C24 K1 K3 K5 F01 "
            "F02 F03 F05 F06 F09 F19 F20 F21 F22 F24 F25 F26 F32 F33 F40 F43 F49").split()
ID = re.compile(r"\b(F\d\d|[RCK]\d{1,2})\b")
ROW = re.compile(r"^\| (F\d\d|[RCK]\d{1,2}) \| (.*) \|$", re.M)


def test_names():
    names = []
    for path in sorted((ROOT / "tests").rglob("*.cpp")):
        text = path.read_text()
        for match in re.finditer(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text):
            names.append("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1))))
    return names


def ids_of(name):
    """The ids before a name's first colon."""
    head, colon, _ = name.partition(":")
    return ID.findall(head) if colon else []


def rows():
    return [(page, id_, cells) for page in PAGES for id_, cells in ROW.findall((ROOT / page).read_text())]


def problems(table, names):
    found, listed = [], {}
    for page, id_, cells in table:
        if id_ in listed:
            found.append(f"{page}: {id_} has two rows")
        quoted = re.findall(r"`([^`]+)`", cells.rsplit(" | ", 1)[-1])
        listed[id_] = quoted
        if not quoted and "later" not in cells:
            found.append(f"{page}: {id_} names no test and is not said to come later")
        for start in quoted:
            if not any(name.startswith(start) for name in names):
                found.append(f"{page}: {id_}: no test is named `{start}...`")
    for id_ in PROMISED:
        named = listed.get(id_, [])
        if not any(id_ in ids_of(start) for start in named):
            found.append(f"{id_}: no row of the pages names a test of it")
    for name in names:
        found += [f"{id_} of test \"{name}\" has no row" for id_ in ids_of(name) if id_ not in listed]
    return found


def main():
    names, table = test_names(), rows()
    found = problems(table, names)
    # A check that finds nothing must be one that can find something.
    planted = {
        "a test that is not there": problems([*table[:-1], (PAGES[1], table[-1][1], "x | y | `no such test`")], names),
        "a promised id without a test": problems([row for row in table if row[1] != "F01"], names),
        "a row without a word about its test": problems([*table[:-1], (PAGES[1], table[-1][1], "x | y | ")], names),
    }
    print(f"1..{1 + len(planted)}")
    print(f"{'not ' if found else ''}ok 1 - every fault and case that is called tested is a test")
    for problem in found:
        print(f"# {problem}")
    for number, (what, caught) in enumerate(planted.items(), 2):
        print(f"{'ok' if len(caught) > len(found) else 'not ok'} {number} - {what} is found")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
