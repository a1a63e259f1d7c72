"""What a wheel of the native tools holds, and which systems may install it: `make wheels`."""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from debian_qemu import QEMU, bundle, said, source_of, takes_plugins, terms  # noqa: E402

ROOT = HERE.parents[1]
BUILT = {
    "dumps/build": ("ptdump", "ptsurvey", "ptheat", "ptrelocate", "ptchase"),
    "pintool/build": ("libpt_qemu.so", "libpt_qemu_api2.so"),
}
LINKED = ("libbpf-dev", "libelf-dev", "zlib1g-dev")  # Debian packages of what is linked statically
NEEDS = re.compile(r"\bGLIBC_(\d+)\.(\d+)")


class Tools(BuildHookInterface):
    """What `make native` built, and Debian's QEMU; the tag names the newest glibc that any of it needs."""

    def initialize(self, version, build_data):
        self.place = TemporaryDirectory()
        place = Path(self.place.name)
        qemu = bundle(place) if takes_plugins() else {}
        if not qemu:
            self.app.display_warning(f"{QEMU}: missing or without plugins, so this wheel brings no QEMU")
        binaries = {**stripped(place), **{f"qemu/{file.name}": file for file in qemu}}
        files = {**binaries, **texts(place, qemu)}
        build_data["force_include"] |= {str(file): f"ptanalyze_native/{name}" for name, file in files.items()}
        build_data["pure_python"] = False
        oldest = (2, 17)  # that has a tag
        major, minor = max([oldest, *(needed for file in binaries.values() for needed in glibc(file))])
        build_data["tag"] = f"py3-none-manylinux_{major}_{minor}_x86_64"

    def finalize(self, version, build_data, artifact_path):
        self.place.cleanup()


def stripped(place):
    """{name: file} of our own tools."""
    built = {name: ROOT / directory / name for directory, names in BUILT.items() for name in names}
    for name, file in built.items():
        subprocess.run(["strip", "--strip-unneeded", "-o", place / name, file], check=True)
    return {name: place / name for name in built}


def texts(place, qemu):
    """{name: file} of the terms of all, and of a list of what is from others, with its source."""
    rows = [(f"qemu/{file.name}", package) for file, package in qemu.items()]
    rows += [("linked into ptdump, ptsurvey, ptheat", package) for package in LINKED]
    table = [f"{what:<40}{package:<18}{source_of(package)}\n" for what, package in rows]
    notice = place / "NOTICE.txt"
    notice.write_text((HERE / "preface.txt").read_text("utf-8") + "".join(table), "utf-8")
    found = {notice.name: notice, "ptanalyze.txt": ROOT / "LICENSE", **terms(package for _, package in rows)}
    return {f"licences/{name}": file for name, file in found.items()}


def glibc(file):
    """Versions (major, minor) of glibc whose symbols an ELF file asks for."""
    return [(int(major), int(minor)) for major, minor in NEEDS.findall(said("objdump", "-T", file))]
