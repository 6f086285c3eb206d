#!/usr/bin/env python3
"""The Debian package of this build: what is in it, what it needs, and that it runs where it is unpacked. With
APPORTION_LONG (`./dev test --long`) it is also installed in a Debian root, used, and removed. Prints TAP."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from broker import BUILD, Tap  # noqa: E402

DEMO = ("demo", "--clients", "2", "--device", "sim:8GiB", "--json")
TOOLS = ("dpkg-deb", "dpkg-shlibdeps", "dpkg-query", "file")


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=3000, check=False, **more)


def said(ran):
    return f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}"


def fair(ran):
    racers = json.loads(ran.stdout)["broker"] if ran.returncode == 0 else []
    return len(racers) == 2 and all(racer["ok"] for racer in racers)


def field(deb, name):
    return run("dpkg-deb", "-f", deb, name).stdout.strip()


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def contents(tap, deb, folder):
    run("cmake", "--install", BUILD, "--prefix", folder / "prefix")
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    (folder / "files.tar").write_bytes(archive)
    members = tarfile.open(folder / "files.tar").getmembers()
    packed = {member.name.removeprefix("./usr/") for member in members if not member.isdir()}
    tap.check("the package has what an installation has, below /usr, and nothing else",
              packed == files_below(folder / "prefix"), sorted(packed ^ files_below(folder / "prefix")))
    strange = [member.name for member in members if (member.uid, member.gid) != (0, 0)
               or member.mode & 0o7022 and not member.issym()]
    tap.check("all of it is root's, nobody else may write it, and no bit gives more rights", not strange, strange)
    scripts = [run("dpkg-deb", "-I", deb, script).stdout for script in ("postinst", "postrm")]
    tap.check("the loader is told when it comes and when it goes", all("ldconfig" in script for script in scripts), scripts)


def package_of(library):
    """Who owns a library that the loader finds; /lib and /usr/lib are one folder."""
    real = os.path.realpath(library)
    for path in (library, real, real.removeprefix("/usr"), "/usr" + library):
        owner = run("dpkg-query", "-S", path)
        if owner.returncode == 0:
            return owner.stdout.split(":")[0]
    return f"nobody (of {library})"


def provided_by(package):
    """The package's name, and the names that stand for its interface (libspdlog1.10-fmt9)."""
    provides = run("dpkg-query", "-W", "-f", "${Provides}", package).stdout
    return {package} | {re.split(r"[ (]", part.strip())[0] for part in provides.split(",") if part.strip()}


def dependencies(tap, deb, unpacked):
    named = {re.split(r"[ (]", part.strip())[0] for part in field(deb, "Depends").split(",")}
    needed = set()
    for path in unpacked.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF":
            linked = set(re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-d", path).stdout))
            found = re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", path).stdout, re.M)
            needed |= {place for name, place in found if name in linked}
    owners = {package_of(library) for library in needed if not library.startswith(str(unpacked))}
    unnamed = {owner for owner in owners if not named & provided_by(owner)}
    unneeded = {name for name in named if not any(name in provided_by(owner) for owner in owners)}
    tap.check("it depends on the packages of the libraries it is linked to, and on no other",
              "libc6" in owners and not unnamed and not unneeded, f"not named: {unnamed}\nnot needed: {unneeded}")
    offered = run("dpkg-deb", "-I", deb, "shlibs").stdout.split()
    tap.check("it offers its own library to others, and not the simulated driver", offered[:3] == ["libapportion", "0", "apportion"]
              and "libcuda" not in offered, offered)


IN_ROOT = r"""
export DEBIAN_FRONTEND=noninteractive
apt-get update -q && apt-get install -y -q --no-install-recommends /root/apportion.deb || exit 1
dpkg -L apportion | grep /usr/ | while read -r path; do [ -d "$path" ] || echo "$path"; done >/root/files
apportiond --help >/root/help; echo $? >/root/help.code
apportion %s >/root/demo.json 2>/root/demo.err; echo $? >/root/demo.code
ldconfig -p | grep -c 'libapportion\.so\.0 ' >/root/known
ldconfig -p | grep -c cudasim >/root/exposed
apt-get remove -y -q apportion || exit 1
while read -r path; do [ ! -e "$path" ] || echo "$path"; done </root/files >/root/left
ldconfig -p | grep -c 'libapportion\.so' >/root/known-after
ls -d /usr/lib/apportion /usr/include/apportion /etc/apportion /var/lib/apportion 2>/dev/null >>/root/left
exit 0
""" % " ".join(DEMO)

SHELL = r"""
set -euo pipefail
. tests/support/chroot.sh
suite=$(own_codename)
chroot_base "$suite" || { echo "debootstrap failed; see build/chroot/$suite-debootstrap.log"; exit 1; }
tree=$(chroot_make "$suite")
trap 'chroot_remove "$tree"' EXIT
cp "$1" "$tree/root/apportion.deb"
printf %s "$2" >"$tree/root/steps"
chroot_run "$tree" bash /root/steps
mkdir "$3" && cp "$tree"/root/* "$3/"
"""


def in_a_root(tap, deb, folder):
    why_not = run("bash", "-c", ". tests/support/chroot.sh; chroot_why_not; [ -n \"$(debian_sources)\" ] || echo no Debian mirror",
                  cwd=ROOT).stdout.strip()
    if why_not:
        tap.check(f"the package is installed, used and removed in a Debian root # SKIP {why_not}", True)
        return
    ran = run("bash", "-c", SHELL, "deb_test", deb, IN_ROOT, folder / "told", cwd=ROOT)
    told = {path.name: path.read_text(errors="replace") for path in (folder / "told").glob("*") if path.suffix != ".deb"}
    tap.check("the package is installed, used and removed in a Debian root", ran.returncode == 0 and told, said(ran))
    if not told:
        return
    tap.check("apportiond --help there", told["help.code"] == "0\n" and "--config" in told["help"], told["help"])
    racers = json.loads(told["demo.json"])["broker"] if told["demo.code"] == "0\n" else []
    tap.check("the demo there", len(racers) == 2 and all(racer["ok"] for racer in racers), told["demo.err"] + told["demo.json"])
    tap.check("the loader there knows libapportion.so.0 while it is installed, and never the simulated driver",
              (told["known"], told["known-after"], told["exposed"]) == ("1\n", "0\n", "0\n"), told)
    tap.check("nothing is left after it was removed", told["files"] and told["left"] == "", told["left"])


def main():
    tap = Tap()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        tap.check(f"the Debian package # SKIP {', '.join(missing)} is not there", True)
        return tap.end()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = run("cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder / "cpack")
        debs = list((folder / "cpack").glob("*.deb"))
        tap.check("one package is made, named as Debian names them",
                  len(debs) == 1 and re.fullmatch(r"apportion_\d+\.\d+\.\d+_\w+\.deb", debs[0].name), said(made))
        contents(tap, debs[0], folder)
        run("dpkg-deb", "-x", debs[0], folder / "unpacked")
        dependencies(tap, debs[0], folder / "unpacked")
        ran = run(folder / "unpacked/usr/bin/apportion", *DEMO)
        tap.check("the demo runs from where it is unpacked", fair(ran), said(ran))
        if os.environ.get("APPORTION_LONG"):
            in_a_root(tap, debs[0], folder)
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
