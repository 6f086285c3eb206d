#!/usr/bin/env python3
"""deploy/man against what the programs say of themselves: the options of --help, the keys of docs/config.md (which the
parser's own table is held against elsewhere). Prints TAP."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from broker import PATIENCE_S, Tap, program  # noqa: E402

MAN = ROOT / "deploy/man"
APPORTION, DAEMON = program("cli/apportion"), program("broker/apportiond")
EVERYWHERE = {"--help", "--version"}


def told_by(*command):
    """The long options of a --help, and its verbs."""
    text = subprocess.run([*command, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE_S, check=True).stdout
    verbs = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
    return (set(re.findall(r"^  (?:-\w,)?(--[a-z][a-z-]*)", text, re.M)),
            set(re.findall(r"^  (\S+)", verbs.group(1), re.M)) if verbs else set())


def options_in(part):
    """Those that a part of a page explains: an item of a list each."""
    return {"-" + option for line in re.findall(r"^\.It (Fl .*)$", part, re.M)
            for option in re.findall(r"(?:^| )Fl (-[a-z][a-z-]*)", line)}


def parts_of(page):
    """The page's subsections by name; what comes before the first one as ""."""
    pieces = re.split(r"^\.Ss (.*)\n", page, flags=re.M)
    bodies = [re.split(r"^\.Sh ", body, flags=re.M)[0] for body in pieces[2::2]]
    return {"": pieces[0], **dict(zip(pieces[1::2], bodies))}


def the_programs(tap):
    options, verbs = told_by(DAEMON)
    page = (MAN / "apportiond.8").read_text()
    tap.check("apportiond(8) explains the options of --help, and no other", options_in(page) == options,
              f"the page: {sorted(options_in(page))}\n--help:   {sorted(options)}")
    parts = parts_of((MAN / "apportion.1").read_text())
    options, verbs = told_by(APPORTION)
    tap.check("apportion(1) has a section for each verb, and for no other", set(parts) - {""} == verbs != set(),
              f"the page: {sorted(parts)}\n--help:   {sorted(verbs)}")
    tap.check("apportion(1) explains what every verb takes", options_in(parts[""]) == options == EVERYWHERE, options)
    for verb in sorted(verbs):
        options = told_by(APPORTION, verb)[0] - EVERYWHERE
        tap.check(f"apportion(1) explains the options of {verb}, and no other", options_in(parts.get(verb, "")) == options,
                  f"the page: {sorted(options_in(parts.get(verb, '')))}\n--help:   {sorted(options)}")


def the_keys(tap):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs/config.md").read_text(), re.M)
    parts = parts_of((MAN / "apportion.toml.5").read_text())
    for table, section in (("broker", "[broker]"), ("job", "[jobs.NAME]"), ("adhoc", "[adhoc]")):
        keys = sorted(key for key, where in rows if where == table)
        listed = sorted(re.findall(r"^\.It Ic (\w+)", parts.get(section, ""), re.M))
        tap.check(f"apportion.toml(5) explains every key of {section}, and no other", keys and listed == keys,
                  f"the page:       {listed}\ndocs/config.md: {keys}")


def main():
    tap = Tap()
    the_programs(tap)
    the_keys(tap)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
