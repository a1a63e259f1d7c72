"""Kernels from Debian's packages, of one package or of the three that there are since Linux 6.19."""

import lzma
import os
import shutil
import struct
import subprocess

import pytest

from . import images

pytestmark = pytest.mark.skipif(
    not (shutil.which("dpkg-deb") and shutil.which("busybox")) and not os.environ.get("CI"),
    reason="needs dpkg-deb and busybox",
)
VERSION = "6.19.6+deb14-amd64"
ELF = b"\x7fELF and so on"


def bzimage():
    """As much of a bzImage as has to be read: a packed kernel after two sectors of setup."""
    payload = lzma.compress(ELF)
    head = bytearray(1024)
    head[0x1F1] = 1
    struct.pack_into("<II", head, 0x248, 16, len(payload))
    return bytes(head) + bytes(16) + payload


def package(place, name, depends="", **files):
    root = place / "tree" / name
    (root / "DEBIAN").mkdir(parents=True)
    fields = f"Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@b.c>\nDescription: d\n"
    (root / "DEBIAN/control").write_text(fields + (f"Depends: {depends}\n" if depends else ""))
    for path, data in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    out = place / f"{name}_1_amd64.deb"
    subprocess.run(["dpkg-deb", "-b", root, out], check=True, capture_output=True)
    return out


MODULES = {
    f"usr/lib/modules/{VERSION}/kernel/a.ko": b"\x7fELF" + bytes(500),
    f"usr/lib/modules/{VERSION}/modules.order": b"",
}


def three(place, **elsewhere):
    image = elsewhere or {f"boot/vmlinuz-{VERSION}": bzimage()}
    package(place, f"linux-binary-{VERSION}", **image)
    package(place, f"linux-modules-{VERSION}", **MODULES)
    depends = f"kmod, linux-binary-{VERSION} (= 1), linux-modules-{VERSION}"
    return package(place, f"linux-image-{VERSION}", depends)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("elsewhere", [{}, {f"usr/lib/modules/{VERSION}/vmlinuz": bzimage()}])
def test_image_and_modules_come_from_the_packages_beside_it(tmp_path, elsewhere):
    kernel = images.kernel(str(three(tmp_path, **elsewhere)))
    assert kernel.version == VERSION and kernel.elf.read_bytes() == ELF
    assert kernel.image.read_bytes() == bzimage()
    assert (kernel.root / "lib/modules" / VERSION / "modules.dep").exists()


def test_one_package_that_holds_all_is_enough(tmp_path):
    files = {f"boot/vmlinuz-{VERSION}": bzimage(), **MODULES}
    kernel = images.kernel(str(package(tmp_path, f"linux-image-{VERSION}", "kmod, linux-base", **files)))
    assert kernel.version == VERSION and kernel.elf.read_bytes() == ELF


def test_a_package_that_is_not_beside_it_is_named(tmp_path):
    file = three(tmp_path)
    (tmp_path / f"linux-modules-{VERSION}_1_amd64.deb").unlink()
    with pytest.raises(FileNotFoundError, match=r"linux-modules-6\.19.*\.deb is not beside"):
        images.kernel(str(file))
