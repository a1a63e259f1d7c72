"""A nested page-table entry in words, for people who compare it with their CPU's manual."""

# Intel SDM 3C, "EPT paging-structure entries"; 11, 57 and 58 are KVM's own (arch/x86/kvm/mmu/spte.h).
EPT = {
    0: "read", 1: "write", 2: "execute", 6: "ignore PAT", 7: "page", 8: "accessed", 9: "dirty",
    10: "execute in user mode", 11: "KVM: present", 57: "KVM: host-writable", 58: "KVM: MMU-writable",
    60: "supervisor shadow stack", 61: "sub-page write", 63: "suppress #VE",
}  # fmt: skip
MEMORY_TYPES = {
    0: "uncached",
    1: "write-combining",
    4: "write-through",
    5: "write-protected",
    6: "write-back",
}
# AMD APM 2, 15.25; 9, 10 and 11 are KVM's own.
NPT = {
    0: "present", 1: "write", 2: "user", 3: "PWT", 4: "PCD", 5: "accessed", 6: "dirty", 7: "page",
    8: "global", 9: "KVM: host-writable", 10: "KVM: MMU-writable", 11: "KVM: present", 63: "no execute",
}  # fmt: skip
ADDRESS = range(12, 52)


def words(entry: int, level: int, ept: bool) -> str:
    """Names of the bits that are set in `entry` of a table at `level`, other than the address.

    ept  in Intel's layout, of which a leaf has a memory type; else in AMD's
    """
    names = EPT if ept else NPT
    leaf = level == 1 or (level < 4 and bool(entry >> 7 & 1))
    typed = range(3, 6) if ept and leaf else range(0)
    found = [name for bit, name in names.items() if entry >> bit & 1 and bit not in typed]
    if typed:
        kind = entry >> 3 & 7
        found.append(MEMORY_TYPES.get(kind, f"reserved memory type {kind}"))
    known = {*names, *ADDRESS, *typed}
    return ", ".join([*found, *(f"bit {bit}" for bit in range(64) if entry >> bit & 1 and bit not in known)])
