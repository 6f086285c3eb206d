#!/usr/bin/env python3
"""`./dev` as people mistype it: what it says on which stream. Builds nothing. Prints TAP."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from broker import PATIENCE_S, Tap  # noqa: E402


def dev(*arguments):
    return subprocess.run([str(ROOT / "dev"), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)


def main():
    tap = Tap()
    for arguments, line in ((("biuld",), 'dev: there is no verb "biuld"; ./dev lists the verbs\n'),
                            (("install",), "dev: install needs a folder: ./dev install PREFIX\n")):
        ran = dev(*arguments)
        tap.check(f"./dev {arguments[0]} is one line on standard error, exit status 1",
                  (ran.returncode, ran.stdout, ran.stderr) == (1, "", line), ran)
    for arguments in ((), ("help",)):
        ran = dev(*arguments)
        tap.check(f"./dev {' '.join(arguments)} lists the verbs on standard output",
                  ran.returncode == 0 and ran.stderr == "" and "\n  install PREFIX " in ran.stdout, ran)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
