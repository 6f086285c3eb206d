# Throw-away Debian roots for tests: made by debootstrap once, kept as a tarball in build/chroot, unpacked for each use.
#
# Owns build/chroot. Promises: what is mounted is mounted in a namespace of its own that ends with the command inside, so
# that no crash and no kill leaves a mount behind; packages come from where this machine gets its own. Never: names a
# mirror, mounts anything on the machine's own tree. To be sourced by bash, in the root of the source tree.

readonly kChroots=$PWD/build/chroot

# Prints why no root can be made here; nothing where one can.
chroot_why_not() {
  if [ "$(id -u)" != 0 ]; then echo "without root no Debian root can be made"; return; fi
  if ! command -v debootstrap >/dev/null; then echo "debootstrap is not installed"; return; fi
  unshare --mount --pid --fork true 2>/dev/null || echo "without CAP_SYS_ADMIN no mount namespace can be made"
}

# The machine's own Debian sources, one a line: "URI CODENAME COMPONENT". Empty where it is no Debian.
debian_sources() {
  apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    sed -n 's/^Debian \(http\)/\1/p'
}

own_codename() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release; }

# chroot_base SUITE: makes build/chroot/SUITE.tar where it is missing.
chroot_base() {
  local suite=$1 mirror making
  [ -f "$kChroots/$suite.tar" ] && return 0
  mkdir -p "$kChroots"
  mirror=$(debian_sources | awk -v own="$(own_codename)" '$2 == own {print $1; exit}')
  making=$(mktemp -d "$kChroots/$suite-making-XXXXXX")
  # In a namespace of its own, as debootstrap mounts /proc and /sys.
  if timeout 1800 unshare --mount --pid --fork --kill-child debootstrap --variant=minbase "$suite" "$making" ${mirror:+"$mirror"} \
      >"$kChroots/$suite-debootstrap.log" 2>&1; then
    tar -C "$making" --one-file-system -cf "$kChroots/$suite.tar.part" . && mv "$kChroots/$suite.tar.part" "$kChroots/$suite.tar"
  fi
  chroot_remove "$making"
  [ -f "$kChroots/$suite.tar" ]
}

# chroot_make SUITE: unpacks a root with the machine's ways to the network, and prints its path.
chroot_make() {
  local suite=$1 tree file
  tree=$(mktemp -d "$kChroots/$suite-XXXXXX")
  chmod 755 "$tree"
  tar -C "$tree" -xf "$kChroots/$suite.tar"
  if [ -n "$(debian_sources)" ]; then
    debian_sources | sort -u | sed "s/ $(own_codename)/ $suite/; s/^/deb /" >"$tree/etc/apt/sources.list"
  fi
  for file in /etc/resolv.conf /etc/hosts /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt /etc/pip.conf \
              /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf /etc/apt/auth.conf.d; do
    [ -e "$file" ] || continue
    mkdir -p "$tree$(dirname "$file")"
    rm -f "$tree$file" 2>/dev/null || true
    cp -rL "$file" "$tree$(dirname "$file")/"
  done
  echo "$tree"
}

# Variables that say how the network is reached: proxies, certificates, pip's index.
carried_variables() {
  env | grep -E '^(PIP_[A-Z_]*|https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=' || true
}

# chroot_run TREE COMMAND...: runs it in the root, with /proc, a small /dev, a fresh /dev/shm, and no daemon left behind.
chroot_run() {
  local tree=$1 variables; shift
  mapfile -t variables < <(carried_variables)
  mkdir -p "$kChroots/ccache" "$tree/var/cache/ccache"
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    tree=$1 ccache=$2; shift 2
    mount --bind "$tree" "$tree"
    mount -t proc proc "$tree/proc"
    mount --bind "$ccache" "$tree/var/cache/ccache"
    mount -t tmpfs -o mode=755 dev "$tree/dev"
    for node in null zero full random urandom tty; do
      : >"$tree/dev/$node"
      mount --bind "/dev/$node" "$tree/dev/$node"
    done
    mkdir "$tree/dev/shm" "$tree/dev/pts"
    mount -t tmpfs -o mode=1777,nosuid,nodev shm "$tree/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$tree/dev/pts"
    ln -s pts/ptmx "$tree/dev/ptmx"
    ln -s /proc/self/fd "$tree/dev/fd"
    ln -s /proc/self/fd/0 "$tree/dev/stdin"
    ln -s /proc/self/fd/1 "$tree/dev/stdout"
    ln -s /proc/self/fd/2 "$tree/dev/stderr"
    exec chroot "$tree" "$@"
  ' chroot_run "$tree" "$kChroots/ccache" env -i HOME=/root TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CCACHE_DIR=/var/cache/ccache "${variables[@]}" "$@"
}

# Removes a root, unless something is mounted below it.
chroot_remove() {
  local tree=$1
  if grep -q " $tree[/ ]" /proc/mounts; then
    echo "chroot: something is mounted below $tree: it is left as it is" >&2
    return 1
  fi
  rm -rf --one-file-system "$tree"
}
