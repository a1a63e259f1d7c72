"""What a wheel of the native tools holds, and which systems may install it: `make native-wheel`."""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parents[2]
BUILT = {
    "dumps/build": ("ptdump", "ptsurvey", "ptheat", "ptpingpong", "ptchase"),
    "pintool/build": ("libpt_qemu.so", "libpt_qemu_api2.so"),
}
LINKED = ("libbpf-dev", "libelf-dev", "zlib1g-dev")  # Debian packages of what is linked statically
NEEDS = re.compile(r"\bGLIBC_(\d+)\.(\d+)")


class Tools(BuildHookInterface):
    """Takes what `make native` built; its tag names the newest glibc that one of the tools needs."""

    def initialize(self, version, build_data):
        self.place = TemporaryDirectory()
        build_data["pure_python"] = False
        needed = [(2, 17)]  # the oldest that has a tag
        for directory, names in BUILT.items():
            for name in names:
                built, stripped = ROOT / directory / name, Path(self.place.name, name)
                subprocess.run(["strip", "--strip-unneeded", "-o", stripped, built], check=True)
                build_data["force_include"][str(stripped)] = f"ptanalyze_native/{name}"
                needed += glibc(stripped)
        for package in LINKED:
            text = f"/usr/share/doc/{package}/copyright"
            build_data["force_include"][text] = f"ptanalyze_native/licences/{package}.txt"
        build_data["force_include"][str(ROOT / "LICENSE")] = "ptanalyze_native/licences/ptanalyze.txt"
        major, minor = max(needed)
        build_data["tag"] = f"py3-none-manylinux_{major}_{minor}_x86_64"

    def finalize(self, version, build_data, artifact_path):
        self.place.cleanup()


def glibc(file):
    """Versions (major, minor) of glibc whose symbols an ELF file asks for."""
    text = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
    return [(int(major), int(minor)) for major, minor in NEEDS.findall(text)]
