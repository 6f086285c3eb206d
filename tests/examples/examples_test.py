#!/usr/bin/env python3
"""Runs the programs of examples/ against a real broker on a simulated device, and checks what they say. Prints TAP."""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from broker import Tap, program, running_broker  # noqa: E402


def matches(tap, name, ran, code, *patterns):
    """Every line of the output fits its pattern, in order, and nothing else is there."""
    lines = ran.stdout.splitlines()
    good = ran.returncode == code and len(lines) == len(patterns) and all(
        re.fullmatch(pattern, line) for pattern, line in zip(patterns, lines))
    tap.check(name, good, f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")


def fails(tap, name, ran, line):
    tap.check(name, ran.returncode == 1 and ran.stdout == "" and ran.stderr == line + "\n",
              f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")


def c_program(tap, broker):
    c = program("examples/example_c")
    fits = (r"job trainer on .* \(simulated\): told 2\.50 GiB, of it free 2\.50 GiB; guarantee 2\.50 GiB, limit 2\.50 GiB",
            r"refused: job trainer: .* refused: it would pass the job's limit; .*would help: ask for at most 2\.5 GiB, .*",
            r"got 2\.50 GiB", r"memory: as written", r"gave back 2\.50 GiB")
    matches(tap, "C: refused above the limit, settles for what is free, uses it, gives it back",
            broker.run(c, "trainer"), 0, *fits)
    matches(tap, "C: the job's name from the environment", broker.run(c, APPORTION_JOB="trainer"), 0, *fits)
    fails(tap, "C: a job that is not in the config", broker.run(c, "nobody"),
          'example_c: attach: APPORTION_NOT_FOUND: no job "nobody" in the config; its jobs: trainer, notebook')
    fails(tap, "C: no job named, and no default",  broker.run(c),
          "example_c: attach: APPORTION_NOT_FOUND: no job named, and the config has no [jobs.default]; "
          "its jobs: trainer, notebook")
    missing = str(broker.folder / "missing.sock")
    fails(tap, "C: no broker: every path tried, and the command that starts one",
          broker.run(c, "trainer", APPORTION_SOCKET=missing),
          f"example_c: attach: APPORTION_NOT_FOUND: no broker to talk to; tried {missing} (not there), where "
          "APPORTION_SOCKET points; correct it or leave it out, or "
          "start one with: apportiond --config apportion.toml")


def cpp_program(tap, broker):
    cpp = program("examples/example_cpp")
    matches(tap, "C++: a batch that is too large is halved, and all four come back as sent",
            broker.run(cpp, "trainer"), 0,
            r"job trainer on .* \(simulated\): told 2\.50 GiB, of it free 2\.50 GiB",
            r"refused: job trainer: .*it would pass the job's limit.*", r"batch of 1\.25 GiB", r"four batches: as sent",
            r"gave back 2\.50 GiB")
    matches(tap, "C++: with room up to the limit, nothing is refused", broker.run(cpp, APPORTION_JOB="notebook"), 0,
            r"job notebook on .*told 1\.00 GiB.*", r"batch of 1\.00 GiB", r"four batches: as sent",
            r"gave back 2\.00 GiB")
    fails(tap, "C++: a job that is not in the config", broker.run(cpp, "nobody"),
          'example_cpp: no job "nobody" in the config; its jobs: trainer, notebook')


def service_program(tap, broker):
    service = program("examples/example_service")
    matches(tap, "service: three processes of one job reserve their memory at the start, and requests need no more",
            broker.run(service, "trainer", "800"), 0,
            r"3 processes are ready, each with 800 MiB", r"30 of 30 requests were answered right")
    ran = broker.run(service, "trainer", "1024")
    lines = ran.stderr.splitlines()
    tap.check("service: the third of three that do not fit is refused at the start, and no request is taken",
              ran.returncode == 1 and ran.stdout == "" and len(lines) == 2
              and re.fullmatch(r"example_service: job trainer: 1 GiB refused: it would pass the job's limit \(asked back 512 MiB of .*; would help: .*", lines[0])
              and lines[1] == "example_service: process 3 of 3 did not start: no request is taken",
              f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")


def saxpy_program(tap, broker):
    name = ("saxpy: its arrays live in leased memory; all is checked but the numbers, for a simulated device runs no "
            "kernels")
    saxpy = pathlib.Path(program("examples/saxpy/example_saxpy"))
    if not saxpy.exists():
        tap.skip(name, "no nvcc of CUDA 13 was found when this was configured")
        return
    stand_in = program("cudasim")
    matches(tap, name, broker.run(str(saxpy), "trainer", LD_LIBRARY_PATH=stand_in), 0,
            r"job trainer on .*", r"two arrays of 1048576 floats, 8388608 bytes in use",
            r"copied there and back; numbers not checked: a simulated device runs no kernels")
    fails(tap, "saxpy: a job that is not in the config", broker.run(str(saxpy), "nobody", LD_LIBRARY_PATH=stand_in),
          'example_saxpy: no job "nobody" in the config; its jobs: trainer, notebook')


def nothing_left(tap, broker):
    status = json.loads(broker.run(program("cli/apportion"), "status", "--json").stdout)
    tap.check("the broker has all its memory back, and no session is left",
              status["sessions"] == [] and status["broker"]["charged_bytes"] == 0
              and status["broker"]["free_bytes"] + status["broker"]["in_transit_bytes"] == status["broker"]["pool_bytes"],
              status)
    tap.check("the broker stops cleanly", (code := broker.stop()) == 0, code)


def main():
    tap = Tap()
    with running_broker() as broker:
        c_program(tap, broker)
        cpp_program(tap, broker)
        service_program(tap, broker)
        saxpy_program(tap, broker)
        nothing_left(tap, broker)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
