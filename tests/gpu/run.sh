#!/bin/sh
# Asks the driver of this machine: the conformance suite and the open questions of docs and contract, as
# "question, expected, seen". Needs g++ (C++20), cuda.h and nothing else; no network, no root, under 4 minutes.
# Changes no setting of the device. Runs from any folder, also from a `git archive` copy.
#
#   tests/gpu/run.sh [--cuda-include DIR] [--driver LIBCUDA] [--out FILE] [--only conformance|questions] [--jobs N]
#                    [--build DIR]
#
# --cuda-include: folder of cuda.h (default: APPORTION_CUDA_INCLUDE, tests/gpu/carry/include, CUDA_HOME, ...).
# --driver: the library to ask (default: APPORTION_DRIVER, else libcuda.so.1 of the system).
# --out: a copy of the answers (default: gpu-DATE-UTC.txt beside the build); docs/gpu-results/ keeps such files.
# --build: keep the programs there, and do not build again where they are (default: a temporary folder).
# Exit status: 0 all asked and the suite passed, 1 a check of the suite failed, 2 could not build or ask.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
include= build= driver=${APPORTION_DRIVER:-libcuda.so.1} out= only= jobs=$(nproc 2>/dev/null || echo 2)
fail() { echo "tests/gpu/run.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || fail "'$1' needs a value; see the head of this file"
  case $1 in
    --cuda-include) include=$2 ;;
    --driver) driver=$2 ;;
    --out) out=$2 ;;
    --only) only=$2 ;;
    --build) build=$2 ;;
    --jobs) jobs=$2 ;;
    *) fail "unknown option '$1'; see the head of this file" ;;
  esac
  shift 2
done
case $only in '' | conformance | questions) ;; *) fail "--only is conformance or questions, not '$only'" ;; esac

for folder in "$include" "${APPORTION_CUDA_INCLUDE:-}" "$root/tests/gpu/carry/include" "${CUDA_HOME:-}/include" \
  /usr/local/cuda/include /usr/include; do
  [ -n "$folder" ] && [ -f "$folder/cudaTypedefs.h" ] && { include=$folder; break; }
done
[ -n "$include" ] && [ -f "$include/cudaTypedefs.h" ] ||
  fail "no cuda.h found; name its folder with --cuda-include, or carry it (tests/gpu/prepare.sh)"
include=$(cd "$include" && pwd)
compiler=${CXX:-g++}
command -v ${compiler%% *} >/dev/null || fail "no '$compiler'; set CXX to a C++20 compiler"

if [ -n "$build" ]; then
  mkdir -p "$build"
  build=$(cd "$build" && pwd)
else
  build=$(mktemp -d "${TMPDIR:-/tmp}/apportion-gpu.XXXXXX")
  trap 'rm -rf "$build"' EXIT
fi
date_utc=$(date -u +%Y-%m-%dT%H%MZ)
[ -n "$out" ] || out=$PWD/gpu-$date_utc.txt
start=$(date +%s)
cd "$root"

# Everything but the two mains is shared by both programs; the helper process is a program of its own.
flags="-std=c++20 -O0 -Wall -Wextra -isystem tests/gpu/fallback -I. -isystem $include"
sources=$(ls gpu/*.cpp shm/bytes.cpp shm/device_name.cpp shm/quote.cpp shm/result.cpp cudasim/scratch_folder.cpp tests/conformance/*.cpp tests/gpu/*.cpp tests/gpu/fallback/*.cpp)
object() { echo "$build/$(echo "$1" | tr / _).o"; }
compile_all() {
  for source in $sources; do echo "$source $(object "$source")"; done |
    xargs -P "$jobs" -L 1 sh -c "$compiler $flags -c \"\$0\" -o \"\$1\" || exit 255" ||
    fail "it does not compile; see above"
}

link() {  # link PROGRAM PATTERN: the objects whose names match go into it, with the product's
  program=$1
  pattern=$2
  # shellcheck disable=SC2046 # object names have no spaces
  $compiler -o "$build/$program" $(ls "$build"/gpu_*.o "$build"/shm_*.o "$build"/cudasim_*.o) \
    $(ls "$build"/tests_*.o | grep -E "$pattern") -ldl -pthread || fail "it does not link; see above"
}
if [ ! -x "$build/questions" ]; then
  compile_all
  support='conformance_(answer|driver)\.'
  link conformance_peer "$support|conformance_peer_"
  support="$support|conformance_(local|peer|scene|simulator)\.|bare_main\."
  link conformance "$support|conformance_[a-z]*_test\."
  link questions "$support|gpu_question"
fi
built=$(date +%s)
# All of it, build included, ends within 4 minutes; the suite may take three fifths of what is left.
left=$((230 - (built - start)))
[ "$left" -ge 60 ] || left=60

# Where the simulator is asked, each scene makes its device; a name of a library is left to the loader.
export APPORTION_DRIVER="$driver" CUDASIM_FORCE=1
status=0
ask() {  # ask PROGRAM SECONDS
  timeout -k 5 "$2" "$build/$1" >"$build/answers" 2>"$build/complaints" && code=0 || code=$?
  cat "$build/answers"
  [ "$code" -le 1 ] || { echo "$1 ended with status $code; its last complaints:"; tail -n 5 "$build/complaints"; }
  [ "$code" -le "$status" ] || status=$code
}
{
  echo "# Apportion: what this driver does, $date_utc"
  echo "# machine: $(uname -srm); driver library: $driver"
  [ ! -r /proc/driver/nvidia/version ] || sed 's/^/# /' /proc/driver/nvidia/version
  ! command -v nvidia-smi >/dev/null ||
    nvidia-smi --query-gpu=name,driver_version,memory.total,persistence_mode,mig.mode.current --format=csv,noheader |
    sed 's/^/# device: /' || true
  [ "$only" = questions ] || { echo; echo "## Conformance suite"; ask conformance $((left * 3 / 5)); }
  [ "$only" = conformance ] || { echo; echo "## Open questions"; ask questions $((left * 2 / 5)); }
  echo
  echo "# built in $((built - start)) s, asked in $(($(date +%s) - built)) s, status $status"
  echo "$status" >"$build/status"
} | tee "$out"
echo "written to $out" >&2
status=$(cat "$build/status")
[ "$status" -le 1 ] || exit 2
exit "$status"
