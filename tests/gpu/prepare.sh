#!/bin/sh
# Packs what a bare machine needs to run tests/gpu/run.sh: the committed tree as `git archive` gives it, and the
# CUDA headers it includes (nothing else of the toolkit) under tests/gpu/carry/include.
#
# APPORTION_TREE: another commit than HEAD.
#
#   tests/gpu/prepare.sh FOLDER [CUDA_INCLUDE]     FOLDER must not exist; it is then copied to the machine
set -eu
fail() { echo "tests/gpu/prepare.sh: $*" >&2; exit 2; }
[ $# -ge 1 ] || fail "usage: tests/gpu/prepare.sh FOLDER [CUDA_INCLUDE]"
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1
include=${2:-${APPORTION_CUDA_INCLUDE:-/usr/local/cuda/include}}
[ ! -e "$folder" ] || fail "'$folder' exists; name a new folder"
[ -f "$include/cudaTypedefs.h" ] || fail "no cudaTypedefs.h in '$include'; name the folder of cuda.h"
include=$(cd "$include" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
git -C "$root" archive "${APPORTION_TREE:-HEAD}" | tar -x -C "$folder"
carry=$folder/tests/gpu/carry/include
mkdir -p "$carry"
# The headers that these two include, and no others.
printf '#include <cuda.h>\n#include <cudaTypedefs.h>\n' |
  "${CXX:-g++}" -x c++ -std=c++20 -isystem "$include" -M -MT x - | tr ' \\' '\n\n' | grep "^$include/" | sort -u |
  while read -r header; do
    target=$carry/${header#"$include"/}
    mkdir -p "$(dirname "$target")"
    cp "$header" "$target"
  done
[ -f "$carry/cuda.h" ] || fail "found no headers under '$include'"
echo "$folder is ready: run tests/gpu/run.sh in it"
