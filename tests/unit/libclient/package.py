"""What a user of the library gets: headers that every compiler takes, and the names that libapportion.so shows. Programs
that use an installed copy: tests/install.  package.py BUILD_DIR.  Prints TAP."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
INCLUDE = os.path.join(ROOT, "libclient", "include")
BUILD = os.path.abspath(sys.argv[1])
LIBRARY = os.path.join(BUILD, "libclient", "libapportion.so")

# Names are only ever added (libclient/apportion.map): a program that was linked must go on starting.
NAMES = """apportion_allocate apportion_attach apportion_check apportion_deallocate apportion_detach
apportion_get_info apportion_get_stats apportion_graph_pool_begin apportion_graph_pool_end apportion_graph_pool_release
apportion_last_error apportion_reserve apportion_status_name apportion_stream_gone apportion_trim_to apportion_version""".split()

# Sizes and places of what callers compiled in, on 64 bits. They only ever grow at the end.
LAYOUT = """
#include <apportion/apportion.h>
#define AT(type, member, offset) typedef char type##_##member[offsetof(type, member) == (offset) ? 1 : -1]
AT(apportion_attach_options, job, 8); AT(apportion_attach_options, socket, 16);
AT(apportion_attach_options, label, 24); AT(apportion_attach_options, flags, 32);
AT(apportion_info, total_bytes, 8); AT(apportion_info, free_bytes, 16); AT(apportion_info, guarantee_bytes, 24);
AT(apportion_info, in_force_bytes, 32); AT(apportion_info, covered_bytes, 40); AT(apportion_info, limit_bytes, 48);
AT(apportion_info, used_bytes, 56); AT(apportion_info, charged_bytes, 64); AT(apportion_info, chunk_bytes, 72);
AT(apportion_info, session_id, 80); AT(apportion_info, simulated, 88); AT(apportion_info, job, 96);
AT(apportion_info, device_uuid, 160); AT(apportion_info, device_name, 208);
AT(apportion_stats, num_allocs, 8); AT(apportion_stats, bytes_in_use, 16); AT(apportion_stats, bytes_limit, 40);
AT(apportion_stats, pool_bytes, 80); AT(apportion_stats, live_blocks, 96); AT(apportion_stats, fragmentation, 128);
AT(apportion_stats, chunks_returned, 184); AT(apportion_stats, magazine_hits, 192);
typedef char info_grows[sizeof(apportion_info) >= 304 ? 1 : -1];
typedef char stats_grow[sizeof(apportion_stats) >= 216 ? 1 : -1];
typedef char statuses[APPORTION_QUOTA == 4 && APPORTION_BUSY == 11 && APPORTION_TIMED_OUT == 12 ? 1 : -1];
"""

PROGRAM = """
#include <apportion/apportion.h>
#include <stdio.h>
#include <string.h>
int main(void) {
  apportion_attach_options options;
  apportion_client* client = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.socket = "/nonexistent/apportion.sock";
  if (apportion_attach(&options, &client) != APPORTION_NOT_FOUND || client != NULL) return 1;
  puts(apportion_version());
  return strstr(apportion_last_error(), "/nonexistent/apportion.sock") == NULL;
}
"""

FLAGS = "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror".split()


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, **more)


def compiles(compiler, language, standard, text):
    done = run(compiler, "-x", language, "-std=" + standard, *FLAGS, "-I", INCLUDE, "-fsyntax-only", "-", input=text)
    return done.stdout if done.returncode != 0 else ""


def c_header(compiler):
    return "".join(compiles(compiler, "c", standard, text)
                   for standard in ("c99", "c11") for text in ("#include <apportion/apportion.h>\n", LAYOUT, PROGRAM))


def cpp_headers(compiler):
    return "".join(compiles(compiler, "c++", standard, "#include <apportion/" + header + ">\n")
                   for standard in ("c++17", "c++20") for header in ("apportion.h", "apportion.hpp"))


def exported():
    lines = run("nm", "-D", "--defined-only", LIBRARY).stdout.split("\n")
    seen = sorted({line.split()[-1].split("@")[0] for line in lines if line and " A " not in line})
    return "" if seen == sorted(NAMES) else "exported: " + " ".join(seen)


def needs():
    lines = run("readelf", "-d", LIBRARY).stdout.split("\n")
    libraries = [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]
    strange = [one for one in libraries
               if not one.startswith(("libc.", "libm.", "libstdc++.", "libgcc_s.", "ld-linux"))]
    # The driver is loaded at run time: a linked one would end every program on a machine without it.
    return "linked to " + " ".join(strange) if strange else ""


def main():
    tests = []
    for compiler in ("gcc", "clang"):
        if shutil.which(compiler):
            tests.append((compiler + ": apportion.h is C99 and C11, pedantic, and its layout is what callers compiled in",
                          lambda compiler=compiler: c_header(compiler)))
            tests.append((compiler + ": apportion.h and apportion.hpp are C++17 and C++20",
                          lambda compiler=compiler: cpp_headers(compiler)))
    tests += [("libapportion.so shows the pinned names and no other", exported),
              ("libapportion.so is linked to no driver", needs)]
    print("1..%d" % len(tests))
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        wrong = test()
        failed += wrong != ""
        for line in wrong.split("\n") if wrong else []:
            print("# " + line)
        print("%s %d - %s" % ("not ok" if wrong else "ok", number, name))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
