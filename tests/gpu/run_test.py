#!/usr/bin/env python3
"""tests/gpu/run.sh, from a copy that `git archive` made, without network, against the simulator. Prints TAP.

    run_test.py SOURCE_FOLDER CUDA_INCLUDE SIMULATOR

The copy holds the committed tree and the tracked changes of the working tree.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

QUESTIONS = 18
ONLY_ON_A_DEVICE = {13, 18}


def command(arguments, **options):
    return subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, **options)


def without_network():
    """A prefix that takes the network away, where this user may."""
    probe = ["unshare", "-n", "true"]
    return probe[:2] if shutil.which("unshare") and command(probe).returncode == 0 else []


def blocks_of(answers):
    """Every question of the answers: its first line, and the lines below it."""
    blocks = []
    for line in answers.splitlines():
        if line.startswith("question"):
            blocks.append((line, []))
        elif blocks and line.startswith("  "):
            blocks[-1][1].append(line.strip())
    return blocks


def unanswered(blocks):
    return [head for head, lines in blocks if not any(line.startswith("seen:") for line in lines)]


def main():
    source, include, simulator = sys.argv[1:4]
    if command(["git", "-C", source, "rev-parse", "HEAD"]).returncode != 0:
        print("1..1\nok 1 - run.sh from an archive # SKIP this is no git checkout")
        return 0
    tree = command(["git", "-C", source, "stash", "create"]).stdout.strip() or "HEAD"
    environment = dict(os.environ, APPORTION_TREE=tree)
    for variable in ("APPORTION_DRIVER", "APPORTION_NVML", "APPORTION_PEER", "CUDASIM_DIR", "CUDASIM_BREAK",
                     "APPORTION_CUDA_INCLUDE", "CUDA_HOME"):
        environment.pop(variable, None)
    results = []

    def check(what, wrong):
        results.append((what, wrong))

    with tempfile.TemporaryDirectory(prefix="gpu-run-") as folder:
        copy, build = os.path.join(folder, "copy"), os.path.join(folder, "build")
        packed = command([os.path.join(source, "tests/gpu/prepare.sh"), copy, include], env=environment)
        check("prepare.sh packs the tree and the headers", [] if packed.returncode == 0 else [packed.stderr])
        if shutil.which("ccache"):
            # Copies of one tree have the same objects, wherever they lie.
            environment.update(CXX="ccache g++", CCACHE_BASEDIR=folder, CCACHE_NOHASHDIR="1")
        run = [*without_network(), os.path.join(copy, "tests/gpu/run.sh"), "--build", build, "--jobs", "2"]

        out = os.path.join(folder, "answers.txt")
        ran = command([*run, "--driver", simulator, "--out", out], env=environment, cwd=folder)
        check("run.sh builds and asks without network, and every check of the suite holds",
              [] if ran.returncode == 0 else [f"status {ran.returncode}", *ran.stdout.splitlines()[-20:], *ran.stderr.splitlines()[-20:]])
        blocks = blocks_of(ran.stdout)
        rules = [block for block in blocks if not re.match(r"question \d+:", block[0])]
        questions = {int(re.match(r"question (\d+):", head)[1]): lines for head, lines in blocks
                     if re.match(r"question (\d+):", head)}
        suite = os.path.join(build, "conformance")
        listed = command([suite, "--list"], env=environment).stdout.splitlines() if os.path.exists(suite) else []
        check("each test of the suite is printed with what was seen",
              ([] if len(rules) == len(listed) > 0 else [f"{len(rules)} of {len(listed)} tests"]) + unanswered(rules))
        check("all 18 open questions are asked, in order",
              [] if list(questions) == list(range(1, QUESTIONS + 1)) else [f"asked: {list(questions)}"])
        check("each question has what was expected and what was seen",
              [f"question {n}" for n, lines in questions.items()
               if not any(l.startswith("expected:") for l in lines) or not any(l.startswith("seen:") for l in lines)])
        check("only what needs a kernel is not asked on the simulator",
              [f"question {n}: {lines}" for n, lines in questions.items()
               if any("not on the simulator" in l for l in lines) != (n in ONLY_ON_A_DEVICE)])
        written = open(out, encoding="utf-8").read() if os.path.exists(out) else ""
        check("the answers are also in a dated file",
              [] if written == ran.stdout and re.search(r"\d{4}-\d\d-\d\dT\d{4}Z", written) else ["the file differs"])

        broken = command([*run, "--driver", simulator, "--out", out, "--only", "conformance"],
                         env=dict(environment, CUDASIM_BREAK="17", CONFORMANCE_DEADLINE_MS="2000"), cwd=folder)
        check("a broken rule is seen and makes the status 1",
              [] if broken.returncode == 1 and re.search(r"seen: .*unmap", broken.stdout) else
              [f"status {broken.returncode}", *broken.stdout.splitlines()[-5:]])
        absent = command([*run, "--driver", "/nonexistent/libcuda.so.1", "--out", out], env=environment, cwd=folder)
        check("a driver that is not there is named, and makes the status 2",
              [] if absent.returncode == 2 and "/nonexistent/libcuda.so.1" in absent.stdout else
              [f"status {absent.returncode}", *absent.stdout.splitlines()[-5:]])

    print(f"1..{len(results)}")
    for index, (what, wrong) in enumerate(results, start=1):
        print(("not " if wrong else "") + f"ok {index} - {what}")
        for line in wrong:
            print("# " + str(line).replace("\n", "\n# "))
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == "__main__":
    sys.exit(main())
