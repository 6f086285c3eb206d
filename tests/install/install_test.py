#!/usr/bin/env python3
"""Installs the build below a temporary folder and uses it from there, as `./dev install PREFIX` does. Prints TAP."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

build = pathlib.Path(sys.argv[1])
number = 0


def test(name, holds, why=""):
    global number
    number += 1
    print(f"{'ok' if holds else 'not ok'} {number} - {name}")
    if not holds:
        print("\n".join(f"# {line}" for line in str(why).splitlines()))


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, **more)


print("1..5")
wanted = run("ninja", "-C", str(build), "-t", "commands", "installed").stdout
compiled = set(re.findall(r" -c \S*/((?:shm|config|gpu|broker|libclient|cli|cudasim|tests|examples)/\S+)", wanted))
foreign = sorted(name for name in compiled if name.startswith(("tests/", "examples/")) and not name.startswith("tests/replay/")
                 or name.endswith("_test.cpp"))
test("what `./dev install` builds is what is installed, and no test", "broker/main.cpp" in compiled and not foreign,
     foreign or wanted[:500])
with tempfile.TemporaryDirectory() as folder:
    prefix = pathlib.Path(folder) / "prefix"
    installed = run("cmake", "--install", str(build), "--prefix", str(prefix))
    expected = ["bin/apportion", "bin/apportiond", "include/apportion/apportion.h", "include/apportion/apportion.hpp",
                "lib/libapportion.so", "lib/apportion/cudasim/libcuda.so.1", "lib/apportion/cudasim/libnvidia-ml.so.1"]
    missing = [name for name in expected if not (prefix / name).exists()]
    test("an installation has the programs, the library, its headers and the simulator",
         installed.returncode == 0 and not missing, f"{installed.stderr}missing: {missing}")
    loose = [str(path) for path in prefix.rglob("libcuda*") if "apportion/cudasim" not in str(path)]
    test("the simulated driver lies where no loader looks", not loose, loose)

    demo = run(str(prefix / "bin/apportion"), "demo", "--clients", "2", "--device", "sim:8GiB", "--json")
    result = json.loads(demo.stdout) if demo.returncode == 0 else {}
    test("the demo runs from an installation", all(racer["ok"] for racer in result.get("broker", [{"ok": False}])),
         demo.stdout + demo.stderr)

    program = pathlib.Path(folder) / "program.c"
    program.write_text('#include <apportion/apportion.h>\n#include <stdio.h>\n'
                       'int main(void) { puts(apportion_version()); return 0; }\n')
    built = run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", str(program), f"-I{prefix}/include",
                f"-L{prefix}/lib", "-lapportion", f"-Wl,-rpath,{prefix}/lib", "-o", f"{folder}/program")
    said = run(f"{folder}/program") if built.returncode == 0 else built
    test("a C program outside the tree builds against it and runs", said.returncode == 0 and said.stdout.strip(),
         built.stderr + said.stdout)
