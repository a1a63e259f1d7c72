"""ptdump's KVM programs, loaded with the BTF of kernels whose structures differ from this one's."""

import struct
import subprocess
from pathlib import Path

import pytest

from native.dumping import PROGRAMS, REPOSITORY, make
from native.vms import need_kvm

pytestmark = pytest.mark.native
BTF = Path("/sys/kernel/btf")
HEADER = struct.Struct("<HBBIIIII")  # struct btf_header
N_USED = (b"n_used_mmu_pages", b"x_used_mmu_pages")
IN_STATISTICS = (b"mmu_shadow_zapped", b"mmu_shadow_pages\0")  # another u64 of kvm_vm_stat


def parts(path):
    """Types and strings of a BTF file."""
    data = path.read_bytes()
    *_, header, types, types_length, strings, strings_length = HEADER.unpack_from(data)
    types, strings = header + types, header + strings
    return data[types : types + types_length], data[strings : strings + strings_length]


def whole_btf():
    """The kernel's BTF, followed by that of the module kvm, whose numbers go on where the kernel's end."""
    types, strings = parts(BTF / "vmlinux")
    if (BTF / "kvm").exists():
        types, strings = (a + b for a, b in zip((types, strings), parts(BTF / "kvm"), strict=True))
    return HEADER.pack(0xEB9F, 1, 0, HEADER.size, 0, len(types), len(types), len(strings)) + types + strings


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    need_kvm()
    make("dumps")
    program = tmp_path_factory.mktemp("loader") / "kvm_load"
    includes = [f"-I{REPOSITORY / part}" for part in ("dumps", "dumps/build")]
    subprocess.run(["cc", *includes, "-o", program, PROGRAMS / "kvm_load.c", "-lbpf"], check=True)
    return program


@pytest.mark.parametrize("renamed", [[], [N_USED], [N_USED, IN_STATISTICS]], ids=["here", "nowhere", "7.2"])
def test_the_number_of_shadow_tables_may_be_elsewhere_or_nowhere(loader, tmp_path, renamed):
    btf = whole_btf()
    for old, new in renamed:
        assert btf.count(b"\0" + old + b"\0") == 1
        btf = btf.replace(b"\0" + old + b"\0", b"\0" + new + b"\0")
    (tmp_path / "btf").write_bytes(btf)
    done = subprocess.run([loader, tmp_path / "btf"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
