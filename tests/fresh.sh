#!/usr/bin/env bash
# Does what the README says work for a stranger? A Debian root with nothing in it, git, a clone of what is committed here,
# and the README's two commands as they would be typed. Prints one line of verdict; all that was said is in
# build/chroot/SUITE.log. Needs root and debootstrap. Compilations are cached in build/chroot/ccache.
#
#   tests/fresh.sh bookworm                    Debian 12
#   tests/fresh.sh trixie                      Debian 13: a newer compiler, Catch2 3
#   tests/fresh.sh trixie './dev build'        other commands instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/support/chroot.sh

[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
readonly kSuite=$1; shift
[ $# -gt 0 ] || set -- './dev demo' './dev test'
readonly log=$kChroots/$kSuite.log kLimit=3h
started=$SECONDS

verdict() { echo "fresh: $kSuite: $*"; }
give_up() { verdict "FAILED: $*; the log: build/chroot/$kSuite.log"; exit 1; }

why_not=$(chroot_why_not)
[ -z "$why_not" ] || { verdict "not run: $why_not"; exit 1; }
mkdir -p "$kChroots"
: >"$log"
chroot_base "$kSuite" || give_up "debootstrap; see build/chroot/$kSuite-debootstrap.log"
tree=$(chroot_make "$kSuite")
child=""
trap 'end_child; chroot_remove "$tree"' EXIT
trap 'exit 130' INT TERM HUP

# timeout leads a group of processes; with it goes the namespace and all that is in it.
end_child() { [ -z "$child" ] || { kill -KILL -- "-$child" && wait "$child"; } 2>/dev/null || true; }

# In the background, so that a signal is heard at once.
in_root() {
  local code=0
  echo "=== $1" >>"$log"
  timeout -s KILL "$kLimit" bash -c '. tests/support/chroot.sh; chroot_run "$0" bash -c "$1"' "$tree" "$1" >>"$log" 2>&1 </dev/null &
  child=$!
  wait "$child" || code=$?
  child=""
  return $code
}

in_root 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends git' ||
  give_up "git could not be installed"
# Not in /root: tests that run as root start processes of other users, which must reach what was built.
git clone -q --no-hardlinks . "$tree/srv/apportion" >>"$log" 2>&1 || give_up "git clone"
said=""
for command in "$@"; do
  in_root "cd /srv/apportion && $command" || give_up "$command"
  said+="${said:+, }$command"
  passed=$(tail -n 1 "$log" | grep -E '^[0-9]+ passed, ' || true)
  said+="${passed:+ ($passed)}"
done
verdict "ok at $(git rev-parse --short HEAD): $said; $((SECONDS - started)) s"
