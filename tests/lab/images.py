"""The lab's kernel and initramfs images, built from Debian packages and kept in a cache directory."""

import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).parent
ROOT = LAB.parents[1]
PACKAGES = {  # command -> package
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "dpkg": "dpkg",
    "apt-get": "apt",
    "gcc": "gcc",
    "ldd": "libc-bin",
}
UNUSED = ("sound", "drivers/gpu", "drivers/media", "drivers/net", "drivers/scsi")  # most modules are theirs
SHARE_MODULES = ("virtio_pci", "9pnet_virtio", "9p")
BIOS = ("bios-256k.bin", "linuxboot_dma.bin", "pvh.bin", "kvmvapic.bin")


@dataclass(frozen=True)
class Kernel:
    """`image` boots as on a real machine; `elf` is the same uncompressed: sooner, no KASLR, only 4 levels."""

    version: str
    image: Path
    elf: Path
    root: Path


def missing_packages():
    """Debian packages whose commands are not there."""
    return sorted({package for command, package in PACKAGES.items() if not shutil.which(command)})


def cache():
    directory = Path(os.environ.get("LAB_CACHE") or ROOT / "build/lab")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def kernel(file=None):
    """Kernel of the package `file`, else of linux-image-amd64: fetched and unpacked, never installed.

    Since Linux 6.19 linux-image is empty: the packages that it names and that hold image and modules must lie
    beside `file`.
    """
    package = Path(file).stem if file else kernel_package()
    root = cache() / package
    if not root.is_dir():
        with tempfile.TemporaryDirectory(dir=cache()) as inside:
            unpack(with_its_parts(file) if file else fetched(package, inside), Path(inside) / "root")
            os.rename(Path(inside) / "root", root)
    (modules,) = (root / "lib/modules").iterdir()
    return Kernel(modules.name, image_in(root), root / "vmlinux", root)


def kernel_package():
    depends = run("apt-cache", "depends", "linux-image-amd64", check=False)
    if "linux-image-" not in depends:
        run("apt-get", "update", "-qq")
        depends = run("apt-cache", "depends", "linux-image-amd64")
    return re.search(r"Depends: (linux-image-\S+)", depends)[1]


def download(package, directory):
    run("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package, cwd=directory)
    return next(Path(directory).glob(f"{package}_*.deb"))


def parts(package):
    """Names of the packages that hold what the linux-image package once held, from what it depends on."""
    return re.findall(r"linux-(?:binary|modules)-[^\s,(|]+", run("dpkg-deb", "-f", package, "Depends"))


def with_its_parts(file):
    """`file` and the packages beside it that it needs."""
    found = [Path(file)]
    for name in parts(file):
        beside = sorted(Path(file).parent.glob(f"{name}_*.deb"))
        if not beside:
            why = "which is empty without: fetch it there"
            raise FileNotFoundError(f"{name}_*.deb is not beside {file}, {why}")
        found.append(beside[-1])
    return found


def fetched(package, directory):
    first = download(package, directory)
    return [first, *(download(name, directory) for name in parts(first))]


def image_in(root):
    """The bzImage; it has been in /boot, and may be beside the modules."""
    (image,) = [path for path in sorted(root.rglob("vmlinuz*")) if path.is_file() and not path.is_symlink()]
    return image


def unpack(files, root):
    """The packages as `root`, with vmlinux and the dependencies of modules that a lab machine can have."""
    unused = [f"--exclude=*/kernel/{name}" for name in UNUSED]
    root.mkdir()
    for file in files:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", root, *unused], stdin=archive.stdout, check=True)
        if archive.returncode:
            raise RuntimeError(f"{file}: dpkg-deb cannot unpack it")
    if not (root / "lib").exists():  # since Debian 13
        (root / "lib").symlink_to("usr/lib")
    (modules,) = (root / "lib/modules").iterdir()
    run("busybox", "depmod", "-b", root, modules.name)
    (root / "vmlinux").write_bytes(uncompressed(image_in(root).read_bytes()))


def uncompressed(image):
    """The ELF kernel inside a bzImage (Documentation/x86/boot.rst: setup_sects, payload_offset, _length)."""
    setup = ((image[0x1F1] or 4) + 1) * 512
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[setup + offset : setup + offset + length]
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dcq"], input=payload, stdout=subprocess.PIPE).stdout
    raise ValueError(f"a kernel packed with {payload[:4].hex()}, expected xz or zstd")


def initramfs(kernel, modules=(), binaries=(), libraries_of=(), data=()):
    """Path of an image that mounts the shared directory on /mnt and runs its file `script`.

    It holds BusyBox, `modules` with what they need, `binaries` with their libraries, the
    `libraries_of` programs that come later, and `data`: pairs (path inside, path outside).
    """
    with tempfile.TemporaryDirectory(dir=cache()) as inside:
        root = Path(inside) / "root"
        for name in ("bin", "proc", "sys", "dev", "tmp", "mnt"):
            (root / name).mkdir(parents=True)
        for binary in (shutil.which("busybox"), *binaries):
            add(root, f"bin/{Path(binary).name}", binary)
        for binary in (*binaries, *libraries_of):
            for library in re.findall(r"(/\S+) \(0x", run("ldd", binary)):
                add(root, library, library)
        for applet in run("busybox", "--list").split():
            if not (root / "bin" / applet).exists():
                (root / "bin" / applet).symlink_to("busybox")
        add_modules(root, kernel, (*SHARE_MODULES, *modules))
        for path, source in data:
            add(root, path, source)
        shutil.copyfile(LAB / "scripts/init.sh", root / "init")
        (root / "init").chmod(0o755)
        return packed(root)


def add(root, path, source):
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def add_modules(root, kernel, wanted):
    """Copy modules with their dependencies and list them, name and file, in /modules in the order of loading.

    kernel  one that has no `root` has all that it needs built in
    """
    if kernel.root is None:
        (root / "modules").touch()
        return
    base = kernel.root / "lib/modules" / kernel.version
    order = []
    for line in (base / "modules.dep").read_text().splitlines():
        module, _, needs = line.partition(":")
        if module_name(module_file(module)) in wanted:
            order += [*reversed(needs.split()), module]
    order = list(dict.fromkeys(order))
    (root / "modules.d").mkdir()
    for module in order:
        opened = lzma.open if module.endswith(".xz") else open
        with opened(base / module, "rb") as file:
            (root / "modules.d" / module_file(module)).write_bytes(file.read())
    files = [module_file(module) for module in order]
    (root / "modules").write_text("".join(f"{module_name(file)} {file}\n" for file in files))


def module_file(module):
    return Path(module).name.removesuffix(".xz")


def module_name(file):
    return Path(file).stem.replace("-", "_")


def packed(root):
    """Image of `root`, named after its contents; made unless it is in the cache."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    contents = hashlib.sha256()
    for name in names:
        path = root / name
        contents.update(name.encode() + b"\0")
        if path.is_file() and not path.is_symlink():
            contents.update(path.read_bytes())
    image = cache() / f"{contents.hexdigest()[:16]}.cpio"
    if not image.exists():
        part = root.with_name("image")
        with open(part, "wb") as out:
            archive = ["busybox", "cpio", "-o", "-H", "newc"]
            listing = "\n".join(names).encode()
            subprocess.run(
                archive, input=listing, stdout=out, stderr=subprocess.DEVNULL, cwd=root, check=True
            )
        os.rename(part, image)
    return image


def bios_files():
    """(path inside, path outside) of the firmware a nested QEMU loads."""
    for name in BIOS:
        for directory in (Path("/usr/share/qemu"), Path("/usr/share/seabios")):
            if (directory / name).exists():
                yield f"/usr/share/qemu/{name}", directory / name
                break


def run(*command, cwd=None, check=True):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if check and done.returncode:
        words = " ".join(map(str, command))
        raise RuntimeError(f"{words}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout
