"""Debian's QEMU user mode with the libraries that it needs, for systems whose own QEMU takes no plugins."""

import re
import subprocess
from pathlib import Path

QEMU = Path("/usr/bin/qemu-x86_64")
OF_EVERY_SYSTEM = ("libc6", "libgcc-s1")  # the wheel's name says which glibc; Debian's depends on libgcc_s


def takes_plugins():
    return QEMU.exists() and "-plugin" in said(QEMU, "--help")


def bundle(place):
    """{file: its Debian package} of QEMU, copied to `place` to look for libraries beside it, and of those.

    RPATH and not RUNPATH: libraries are found by it that only a library needs, so Debian's stay as they are.
    """
    own = place / QEMU.name
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", "--output", own, QEMU], check=True)
    found = {own: package_of(QEMU)}
    for library in map(Path, re.findall(r"=> (/\S+)", said("ldd", QEMU))):
        if (package := package_of(library.resolve())) not in OF_EVERY_SYSTEM:
            found[library] = package
    return found


def package_of(file):
    """The Debian package that a file is from; dpkg may know it by its path before /usr was merged."""
    for path in (file, Path("/", file.relative_to("/usr"))):
        known = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True, check=False)
        if known.returncode == 0:
            return known.stdout.partition(":")[0]
    raise SystemExit(f"{file}: of no Debian package, so its source and terms are not known")


def source_of(package):
    """NAME=VERSION of the source package, as `apt-get source` takes it."""
    return said("dpkg-query", "-W", "-f", "${source:Package}=${source:Version}", package)


def terms(packages):
    """{name: file} of what Debian's packages say of copyright, and of the licences that they refer to."""
    found = {f"{package}.txt": Path("/usr/share/doc", package, "copyright") for package in packages}
    for text in list(found.values()):
        for name in re.findall(r"common-licenses/(\w[\w.-]*\w)", text.read_text("utf-8")):
            licence = Path("/usr/share/common-licenses", name).resolve()  # GPL is the newest, GPL-3
            found[f"{licence.name}.txt"] = licence
    return found


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
