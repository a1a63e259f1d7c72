"""KVM's nested entries from AMD's layout to Intel's, field by field, and what Intel's CPUs accept."""


def npt_to_ept(entry, level):
    """An entry of KVM's NPT as KVM's EPT, by the two manuals and spte.h."""
    if not entry >> 11 & 1:
        return 0
    npt = {name: entry >> bit & 1 for name, bit in NPT.items()}
    leaf = level == 1 or npt["page"]
    ept = dict.fromkeys(EPT, 0)
    ept["read"], ept["write"], ept["execute"] = npt["present"], npt["write"], 1 - npt["nx"]
    ept["page"], ept["accessed"], ept["present to kvm"] = npt["page"], npt["accessed"], 1
    ept["host writable"], ept["mmu writable"] = npt["host writable"], npt["mmu writable"]
    made = entry & (((1 << 40) - 1) << 12 | 3 << 52)
    if leaf:
        ept["dirty"], ept["ignore pat"] = npt["dirty"], 1
        made |= (0 if npt["pcd"] else 4 if npt["pwt"] else 6) << 3
    return made | sum(value << EPT[name] for name, value in ept.items())


NPT = {
    "present": 0, "write": 1, "pwt": 3, "pcd": 4, "accessed": 5, "dirty": 6, "page": 7,
    "host writable": 9, "mmu writable": 10, "nx": 63,
}  # fmt: skip
EPT = {
    "read": 0, "write": 1, "execute": 2, "ignore pat": 6, "page": 7, "accessed": 8, "dirty": 9,
    "present to kvm": 11, "host writable": 57, "mmu writable": 58,
}  # fmt: skip


def misconfigured(entry, level):
    """Why an Intel CPU would reject an EPT entry (SDM 3C, 29.3.3.1), "" when it would not."""
    if not entry & 7:
        return ""
    if entry & 3 == 2:
        return "writable but not readable"
    leaf = level == 1 or (level < 4 and entry >> 7 & 1)
    if leaf and entry >> 3 & 7 in (2, 3, 7):
        return "reserved memory type"
    if not leaf and entry >> 3 & (0x1F if level > 3 else 0xF):
        return "reserved bits of a pointer"
    if leaf and level > 1 and entry >> 12 & ((1 << 9 * (level - 1)) - 1):
        return "huge page not aligned"
    return ""
