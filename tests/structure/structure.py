#!/usr/bin/env python3
"""Holds the tree against the structure that docs/architecture.md promises. Prints one line a problem.

Arrows between folders, who may see CUDA headers and Asio, what the broker's pure core must not know, that each
source file opens by saying what it is, that each folder has a README, and that no file is two ideas long.
With --tap it also plants each kind of violation in a copy and shows that it is found.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# folder -> folders it may include besides itself. Tests and bench may include everything, nothing includes them.
ARROWS = {
    "shm": set(),
    "config": {"shm"},
    "gpu": {"shm"},
    "broker": {"shm", "config", "gpu"},
    "libclient": {"shm", "gpu"},
    "preload": {"shm", "gpu", "libclient"},
    "cli": {"shm", "config", "gpu", "libclient"},
    "examples": {"shm", "gpu", "libclient"},
    "python": {"shm", "gpu", "libclient"},
    "cudasim": set(),
}
CUDA_FOLDERS = {"gpu", "cudasim", "preload", "examples", "tests", "bench"}
CUDA_FILES = {"libclient/include/apportion/rmm.hpp"}
CUDA_HEADER = re.compile(r"cuda(_runtime|Typedefs|_runtime_api)?(_api)?\.h")
ASIO_STEMS = {"server", "session", "watch", "keeper", "helper", "admin", "main"}
PURE_STEMS = {"core", "book", "journal", "policy", "recovery"}
PURE_BANNED = re.compile(r"#include\s*[<\"](sys/socket\.h|asio|gpu/|ctime|time\.h|chrono|thread|spdlog)")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|time\.sleep)\b")
MAX_LINES = 400
SOURCES = {".cpp", ".hpp", ".c", ".h", ".cu"}


def tracked(root):
    try:
        listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True,
                                 check=True, text=True).stdout
        return sorted(p for p in map(pathlib.PurePosixPath, listing.splitlines()) if (root / p).is_file())
    except (subprocess.CalledProcessError, FileNotFoundError):
        return sorted(pathlib.PurePosixPath(p.relative_to(root)) for p in root.rglob("*")
                      if p.is_file() and "build" not in p.relative_to(root).parts[:1])


def stem_is(stem, names):
    return any(stem == name or stem.startswith(name + "_") for name in names)


def check_includes(path, text):
    top, problems = path.parts[0], []
    for included in INCLUDE.findall(text):
        target = included.split("/")[0]
        if target == "apportion":
            target = "libclient"
        if target in ARROWS and "/" in included and top in ARROWS and target != top and target not in ARROWS[top]:
            problems.append(f"{path}: includes {included}: {top}/ may include only "
                            f"{', '.join(sorted(ARROWS[top])) or 'itself'}")
        if top in ARROWS and target in {"tests", "bench"}:
            problems.append(f"{path}: includes {included}: nothing includes {target}/")
        if CUDA_HEADER.fullmatch(included) and top not in CUDA_FOLDERS and str(path) not in CUDA_FILES:
            problems.append(f"{path}: includes {included}: CUDA headers belong to {', '.join(sorted(CUDA_FOLDERS))}")
        if top == "broker" and included.startswith("asio") and not stem_is(path.stem, ASIO_STEMS):
            problems.append(f"{path}: includes {included}: in broker/ only {', '.join(sorted(ASIO_STEMS))} know Asio")
    if top == "broker" and stem_is(path.stem, PURE_STEMS) and (banned := PURE_BANNED.search(text)):
        problems.append(f"{path}: {banned.group(0)}: the pure core knows no socket, driver, thread, log or clock")
    return problems


def check_file(path, text):
    problems, first = [], text.lstrip().splitlines()[0] if text.strip() else ""
    generated = "generated" in first.lower()
    if path.suffix in {".hpp", ".h"} and not first.startswith(("//", "/*")):
        problems.append(f"{path}: opens without saying what it owns, promises and never does")
    if len(text.splitlines()) > MAX_LINES and not generated:
        problems.append(f"{path}: {len(text.splitlines())} lines: over {MAX_LINES} is two ideas")
    if path.parts[0] == "tests" and (sleep := SLEEP.search(text)):
        problems.append(f"{path}: {sleep.group(0)}: poll with a deadline instead")
    return problems


def check(root):
    problems, folders = [], set()
    for path in tracked(root):
        if path.suffix not in SOURCES:
            continue
        if len(path.parts) > 1:
            folders.add(path.parts[0])
        text = (root / path).read_text(errors="replace")
        problems += check_includes(path, text) + check_file(path, text)
    for folder in sorted(folders):
        if not (root / folder / "README.md").is_file():
            problems.append(f"{folder}/: no README.md that says who may include it")
    return problems


PLANTED = [
    ("an arrow against the design", "shm/planted.cpp", '#include "broker/core.hpp"\n', "may include only"),
    ("the broker including the client library", "broker/planted.cpp", '#include "libclient/arena.hpp"\n', "may include only"),
    ("the client library including the broker", "libclient/planted.cpp", '#include "broker/book.hpp"\n', "may include only"),
    ("the product including tests", "gpu/planted.cpp", '#include "tests/support/catch.hpp"\n', "nothing includes"),
    ("the product including bench", "libclient/planted.cpp", '#include "bench/report.hpp"\n', "nothing includes"),
    ("a CUDA header in the broker", "broker/planted.cpp", "#include <cuda.h>\n", "CUDA headers belong"),
    ("Asio outside the broker's shell", "broker/pool_planted.cpp", "#include <asio.hpp>\n", "know Asio"),
    ("a clock in the pure core", "broker/core_planted.cpp", "#include <chrono>\n", "pure core"),
    ("a header that does not say what it is", "shm/planted.hpp", "#pragma once\n", "opens without"),
    ("a file of two ideas", "shm/planted.cpp", "// planted\n" * (MAX_LINES + 1), "two ideas"),
    ("a sleep in a test", "tests/planted.cpp", "// planted\nvoid f() { usleep" + "(1); }\n", "poll with a deadline"),
    ("a folder without a README", "preload/planted.cpp", "// planted\n", "no README.md"),
]


def tap(root):
    problems = check(root)
    print(f"1..{1 + len(PLANTED)}")
    print(f"{'not ok' if problems else 'ok'} 1 - the tree keeps the promised structure")
    print("\n".join(f"# {problem}" for problem in problems))
    for number, (what, name, text, expected) in enumerate(PLANTED, 2):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            target = copy / name
            target.parent.mkdir(parents=True)
            target.write_text(text)
            if expected != "no README.md":
                (target.parent / "README.md").write_text("planted\n")
            found = [problem for problem in check(copy) if expected in problem]
        print(f"{'ok' if found else 'not ok'} {number} - the structure check finds {what}")
    return bool(problems)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    if sys.argv[1:] == ["--tap"]:
        sys.exit(tap(root))
    problems = check(root)
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
