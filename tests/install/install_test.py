#!/usr/bin/env python3
"""Installs the build below a temporary folder, as `./dev install PREFIX` does, moves that, and uses it from there: the
demo, and programs outside the tree in C and C++, found by CMake and by pkg-config. Prints TAP."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))
from broker import BUILD, Tap, running_broker  # noqa: E402

OUTSIDE = HERE / "outside"
EXPECTED = """bin/apportion bin/apportiond include/apportion/apportion.h include/apportion/apportion.hpp
lib/libapportion.so lib/apportion/cudasim/libcuda.so.1 lib/apportion/cudasim/libnvidia-ml.so.1
lib/apportion/cudasim/libcudart.so.13
lib/cmake/Apportion/ApportionConfig.cmake lib/cmake/Apportion/ApportionConfigVersion.cmake lib/pkgconfig/apportion.pc
share/man/man1/apportion.1 share/man/man5/apportion.toml.5 share/man/man8/apportiond.8
share/doc/apportion/LICENSE share/doc/apportion/examples/workstation.toml""".split()


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=300, check=False, **more)


def what_is_built(tap):
    wanted = run("ninja", "-C", BUILD, "-t", "commands", "installed").stdout
    compiled = set(re.findall(r" -c \S*/((?:shm|config|gpu|broker|libclient|cli|cudasim|tests|examples)/\S+)", wanted))
    foreign = sorted(name for name in compiled
                     if name.startswith(("tests/", "examples/")) and not name.startswith("tests/replay/")
                     or name.endswith("_test.cpp"))
    tap.check("what `./dev install` builds is what is installed, and no test",
              "broker/main.cpp" in compiled and not foreign, foreign or wanted[:500])


def what_is_there(tap, prefix, installed):
    missing = [name for name in EXPECTED if not (prefix / name).exists()]
    tap.check("an installation has programs, library, headers, simulator, man pages and what finds it",
              installed.returncode == 0 and not missing, f"{installed.stderr}missing: {missing}")
    loose = [str(path) for path in prefix.rglob("libcuda*") if "apportion/cudasim" not in str(path)]
    tap.check("the simulated driver lies where no loader looks", not loose, loose)
    library = prefix / "lib/libapportion.so"
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", library).stdout)
    tap.check("the library is a versioned file behind its SONAME, and that behind the linker's name",
              soname and re.fullmatch(r"libapportion\.so\.\d+", soname.group(1)) and library.is_symlink()
              and (prefix / "lib" / soname.group(1)).resolve() == library.resolve() != library
              and re.fullmatch(r"libapportion\.so\.\d+\.\d+\.\d+", library.resolve().name), soname and soname.group(0))
    texts = [path for path in prefix.rglob("*") if path.suffix in (".cmake", ".pc")]
    naming = [str(path) for path in texts if any(str(place) in path.read_text() for place in (ROOT, BUILD, prefix.parent))]
    tap.check("what finds it names neither the folders it was built in nor the prefix", len(texts) >= 5 and not naming, naming)


def the_demo(tap, prefix):
    demo = run(prefix / "bin/apportion", "demo", "--clients", "2", "--device", "sim:8GiB", "--json")
    result = json.loads(demo.stdout) if demo.returncode == 0 else {}
    tap.check("the demo runs from an installation",
              len(result.get("broker", [])) == 2 and all(racer["ok"] for racer in result["broker"]), demo.stdout + demo.stderr)


def by_cmake(prefix, folder):
    """{language: program}, and what was said where there is none."""
    build = folder / "by-cmake"
    configured = run("cmake", "-S", OUTSIDE, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DAPPORTION_WANTED=0.1")
    built = run("cmake", "--build", build) if configured.returncode == 0 else configured
    return {"C": build / "c_program", "C++": build / "cpp_program"}, built.stdout + built.stderr


def by_pkg_config(prefix, folder):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    asked = run("pkg-config", "--cflags", "--libs", "apportion >= 0.1", env=environment)
    flags = [*shlex.split(asked.stdout), f"-Wl,-rpath,{prefix}/lib", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    said = asked.stderr
    programs = {"C": folder / "program_c", "C++": folder / "program_cpp"}
    for compiler, standard, source, program in (("cc", "-std=c99", "program.c", programs["C"]),
                                                ("c++", "-std=c++17", "program.cpp", programs["C++"])):
        said += run(compiler, standard, OUTSIDE / source, *flags, "-o", program).stderr
    return programs, said


def programs_outside(tap, prefix, folder):
    with running_broker(daemon=str(prefix / "bin/apportiond")) as broker:
        for how, (programs, said) in (("CMake", by_cmake(prefix, folder)), ("pkg-config", by_pkg_config(prefix, folder))):
            for language, program in programs.items():
                ran = broker.run(str(program), APPORTION_JOB="trainer") if program.exists() else None
                tap.check(f"a {language} program outside the tree, found by {how}, gets memory of an installed broker",
                          ran is not None and ran.returncode == 0
                          and re.fullmatch(r"\d+\.\d+\.\d+ trainer simulated 2684354560\n", ran.stdout), f"{said}{ran}")
    refused = run("cmake", "-S", OUTSIDE, "-B", folder / "refused", f"-DCMAKE_PREFIX_PATH={prefix}", "-DAPPORTION_WANTED=99")
    tap.check("CMake refuses a version that this is not", refused.returncode != 0 and "99" in refused.stderr, refused.stderr)


def main():
    tap = Tap()
    what_is_built(tap)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        installed = run("cmake", "--install", BUILD, "--prefix", folder / "first")
        prefix = (folder / "first").rename(folder / "moved")
        what_is_there(tap, prefix, installed)
        the_demo(tap, prefix)
        programs_outside(tap, prefix, folder)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
