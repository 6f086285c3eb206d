#!/usr/bin/env python3
"""Writes names.inc, the table of every driver symbol this library exports.

A symbol (cuMemAlloc_v2) answers one base name (cuMemAlloc) from one CUDA version on (3020), for the legacy default
stream or for the per-thread one. cuda.h declares the symbols and the typedef headers list the versions of each base
name; neither says which belongs to which. Both grow in order, so the n-th version is the n-th symbol: plain, _v2, _v3.
The script refuses to guess where the two counts differ.

Usage: generate_names.py CUDA_INCLUDE_FOLDER > names.inc     (the checked-in file is from CUDA 13.0)
"""
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TYPEDEFS = ["cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h"]
# Interop with graphics: declared in headers that need those of GL, EGL and VDPAU, so only the typedefs are read.
INTEROP = re.compile(r"^cu(GL|EGL|VDPAU|Graphics(GL|EGL|VDPAU)|GraphicsResourceGetMappedEgl|EventCreateFromEGL)")
WINDOWS = re.compile(r"^cuWGL")
PER_THREAD = re.compile(r"_pt[sd][sz]$")


def base_of(symbol):
    return re.sub(r"_v\d+$", "", PER_THREAD.sub("", symbol))


def generation(symbol):
    match = re.search(r"_v(\d+)$", PER_THREAD.sub("", symbol))
    return int(match[1]) if match else 1


def versions(folder):
    found = defaultdict(set)
    for name in TYPEDEFS:
        for m in re.finditer(r"\*PFN_(cu\w+?)_v(\d+)(_pt[sd][sz])?\)\(", (folder / name).read_text()):
            if not WINDOWS.match(m[1]):
                found[m[1]].add((int(m[2]), m[3] or ""))
    return found


def declared(folder):
    """Symbols that the headers declare when asked for every version of every function."""
    source = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n"
    text = subprocess.run(["c++", "-E", "-P", "-x", "c++", f"-I{folder}", "-"], input=source, check=True,
                          capture_output=True, text=True).stdout
    return set(re.findall(r"CUresult\s+(cu[A-Z]\w+)\s*\(", text))


def main():
    folder = Path(sys.argv[1])
    table, known = versions(folder), declared(folder)
    by_base = defaultdict(set)
    for symbol in known:
        by_base[base_of(symbol)].add(symbol)
    rows, wrong = [], []
    for base, entries in table.items():
        for per_thread in (False, True):
            wanted = sorted({v for v, suffix in entries if bool(suffix) == per_thread})
            suffix = next((s for _, s in sorted(entries) if s), "") if per_thread else ""
            have = sorted((s for s in by_base[base] if bool(PER_THREAD.search(s)) == per_thread), key=generation)
            if INTEROP.match(base) and not have:
                first = len({v for v, s in entries if not s}) if per_thread else 1
                have = [base + (f"_v{n}" if n > 1 else "") + suffix for n in range(first, first + len(wanted))]
            if len(wanted) != len(have):
                wrong.append(f"{base}: versions {wanted}, symbols {have}")
            kind = suffix[1:] or "legacy"
            rows += [(symbol, base, version, kind) for version, symbol in zip(wanted, have)]
    missing = known - {row[0] for row in rows}
    if wrong or missing:
        sys.exit("\n".join(wrong + [f"no version known: {name}" for name in sorted(missing)]))
    print("// Written by generate_names.py from the headers of CUDA 13.0. Do not edit.")
    print("// symbol, base name, first CUDA version, default stream: legacy, or per thread in one of its two spellings")
    print("#ifndef CUDASIM_INTEROP_NAME  // graphics interop: define it too where those headers are not to be had")
    print("#define CUDASIM_INTEROP_NAME CUDASIM_NAME\n#endif")
    for symbol, base, version, kind in sorted(rows):
        macro = "CUDASIM_INTEROP_NAME" if symbol not in known else "CUDASIM_NAME"
        print(f"{macro}({symbol}, {base}, {version}, {kind})")
    print("#undef CUDASIM_INTEROP_NAME")


main()
