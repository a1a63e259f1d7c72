"""Names of VMAs for people: their file or kind and size, with the address where that is not enough."""

import re
from collections import Counter
from collections.abc import Iterable

from ...world.address_space import NO_VMA

UNITS = ("KiB", "MiB", "GiB", "TiB")
SPAN = re.compile(r"([0-9a-f]+)-([0-9a-f]+)(?: (.+))?")


def vma_names(groups: Iterable[str]) -> dict[str, str]:
    """{group of a table: its name}: "libc.so.6", "[heap]", "anonymous 61.3 MiB"; other groups as they are.

    Names that several VMAs share get the VMA's first address.
    """
    distinct = list(dict.fromkeys(groups))
    names = {group: named(group) for group in distinct}
    shared = Counter(names.values())
    return {
        group: name if shared[name] == 1 else f"{name} at {group.partition('-')[0]}"
        for group, name in names.items()
    }


def named(group: str) -> str:
    if group == NO_VMA:
        return "memory not mapped at the dump"
    found = SPAN.fullmatch(group)
    if found is None:
        return group
    start, end, file = found.groups()
    if file:
        return str(file).rpartition("/")[2] or str(file)
    size = int(end, 16) - int(start, 16)
    power = min(max(size.bit_length() - 1, 10) // 10, len(UNITS))
    count = size / 1024**power
    digits = f"{count:.3g}" if count < 1000 else f"{count:.0f}"
    return f"anonymous {digits}\N{NO-BREAK SPACE}{UNITS[power - 1]}"
