"""Numbers, lists and nodes as Linux shows them in /sys and /proc: odd text is refused by file."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import ptanalyze as pt

SYSTEM = Path("/sys/devices/system")
MOST_BYTES = 1 << 20
MOST = 10**18
LOCAL, FARTHEST = 10, 255  # ACPI: the distance to oneself; of a node that cannot be reached
WHOLE = re.compile(r"\d{1,18}", re.ASCII)
SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
NODE = re.compile(r"node(\d{1,4})", re.ASCII)
EMPTY = re.compile(r"MemTotal:\s+0 kB", re.ASCII)
REAL = "as the kernel writes it: are /sys and /proc the kernel's own?"


def _odd(path: Path, why: str) -> pt.errors.InputError:
    return pt.errors.InputError(path, "contents", pt.errors.NO_VALUE, why)


def found(path: Path) -> str | None:
    """Text of a file, stripped; None where there is none. InputError where it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise _odd(path, f"not a file, {REAL.partition(': ')[2]}")
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _odd(path, f"cannot be read: {error.strerror}") from None


def text_of(path: Path) -> str:
    """Text of a file that must be there."""
    text = found(path)
    if text is None:
        raise _odd(path, "not there: are /sys and /proc mounted?")
    return text


def whole(file: object, field: str, text: str, least: int = 0, most: int = MOST) -> int:
    """The number that a text is; InputError names file, field and text."""
    if not WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise pt.errors.InputError(
            file, field, repr(text[:30]), f"expected a whole number from {least} to {most:,}, {REAL}"
        )
    return int(text)


def number(path: Path, least: int = 0, most: int = MOST, missing: int | None = None) -> int:
    """The number in a file, `missing` where there is none; InputError names file and text."""
    text = text_of(path) if missing is None else found(path)
    return whole(path, "contents", text, least, most) if text is not None else missing or 0


def parse_cpus(text: str, file: object = "CPUs") -> tuple[int, ...]:
    """Numbers of a list of CPUs or nodes such as "0-3,8", ascending; InputError for another text."""
    cpus: set[int] = set()
    for part in text.split(",") if text.strip() else ():
        span = SPAN.fullmatch(part.strip())
        if not span or not int(span[1]) <= int(span[2] or span[1]) < pt.errors.MOST_CPUS:
            why = f"expected numbers below {pt.errors.MOST_CPUS}, in a list such as 0-7,9"
            raise pt.errors.InputError(file, "list", repr(text[:30]), why)
        cpus.update(range(int(span[1]), int(span[2] or span[1]) + 1))
    return tuple(sorted(cpus))


def control_groups(text: str) -> dict[str, str]:
    """{controller, "" of version 2: path} of /proc/PID/cgroup."""
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {one: line[2] for line in lines if len(line) == 3 for one in line[1].split(",")}


# NUMA nodes. Some have CPUs and no memory: what runs there has its memory on the nearest node that has some.


class HostNode(NamedTuple):
    """CPUs of a node that are online; memory: whether it has any."""

    cpus: tuple[int, ...]
    memory: bool


HostNodes: TypeAlias = Mapping[int, HostNode]


def nodes_of(folder: Path) -> dict[int, HostNode]:
    """{node: HostNode} of a directory such as /sys/devices/system/node, ascending; {} without NUMA."""
    listed = [(node, found(folder / f"node{node}/cpulist")) for node in node_numbers(folder)]
    has = found(folder / "has_memory")
    some = parse_cpus(has or "", folder / "has_memory")
    return {
        node: HostNode(
            parse_cpus(cpus, folder / f"node{node}/cpulist"),
            node in some
            if has is not None
            else not EMPTY.search(found(folder / f"node{node}/meminfo") or ""),
        )
        for node, cpus in listed
        if cpus is not None
    }


def node_numbers(folder: Path) -> list[int]:
    """Numbers of its directories node0, node1, ..., ascending."""
    named = (NODE.fullmatch(path.name) for path in folder.glob("node[0-9]*") if path.is_dir())
    numbers = sorted({int(name[1]) for name in named if name})
    if numbers and numbers[-1] >= pt.errors.MOST_NODES:
        raise pt.errors.InputError(
            folder,
            f"node{numbers[-1]}",
            pt.errors.NO_VALUE,
            f"Linux has nodes 0 to {pt.errors.MOST_NODES - 1}",
        )
    return numbers


def distances(folder: Path, nodes: Iterable[int]) -> dict[int, dict[int, int]]:
    """{node: {node: the firmware's distance (SLIT), 10 to itself}}."""
    every = node_numbers(folder)

    def row(node: int) -> Iterator[tuple[int, int]]:
        file = folder / f"node{node}/distance"
        cells = (str(LOCAL) if every == [node] and not file.exists() else text_of(file)).split()
        if len(cells) != len(every):
            raise pt.errors.InputError(
                file, "distances", len(cells), f"expected {len(every)}, one for each node, {REAL}"
            )
        return (
            (to, whole(file, f"to node {to}", cell, LOCAL, FARTHEST))
            for to, cell in zip(every, cells, strict=True)
        )

    return {node: dict(row(node)) for node in nodes}


def groups_of(folder: Path, nodes: HostNodes) -> list[tuple[int, ...]]:
    """For each node with memory: itself, then nodes without whose nearest memory it is; of equally near ones
    the one with fewer such CPUs."""
    groups = {node: [node] for node, one in nodes.items() if one.memory}
    alone = [node for node, one in nodes.items() if one.cpus and not one.memory]
    if nodes and not groups:
        raise pt.errors.InputError(folder / "has_memory", "nodes", "none", f"no node with memory, {REAL}")
    apart, more = distances(folder, alone) if alone else {}, Counter[int]()
    for node in alone:
        near = min(groups, key=lambda one: (apart[node][one], more[one], one))
        more[near] += len(nodes[node].cpus)
        groups[near].append(node)
    return [tuple(group) for group in groups.values()]


def without_memory(groups: Iterable[tuple[int, ...]]) -> str:
    """Which nodes of groups_of have CPUs and no memory, and with whose they count; "" none."""
    each = [f"node {node} with node {home}" for home, *alone in groups for node in alone]
    said = f"CPUs without memory on their node count with the nearest that has some: {', '.join(each)}"
    return said if each else ""


# What Linux shows of ACPI's HMAT: how fast each node's memory is for the nodes that reach it best. Directory
# NODE/access1/initiators, else access0 (Documentation/admin-guide/mm/numaperf.rst): links to the nodes that
# read this memory fastest, with `read_latency` (ns) of those alone. access1 knows nodes with CPUs only,
# access0 also devices that read memory. Slower pairs are not shown.

CLASSES = ("access1", "access0")
MOST_ACCESS = 10**9


def read_hmat(nodes: Path) -> dict[int, tuple[tuple[int, ...], float]]:
    """{node: (initiators, ns)} of a directory such as /sys/devices/system/node; those without are left out.

    CaptureError names the file whose content is no number.
    """
    found = {node: access_of(nodes / f"node{node}") for node in node_numbers(nodes)}
    return {node: access for node, access in found.items() if access is not None}


def access_of(node: Path) -> tuple[tuple[int, ...], float] | None:
    for name in CLASSES:
        place = node / name / "initiators"
        links = (NODE.fullmatch(path.name) for path in place.iterdir()) if place.is_dir() else ()
        initiators = tuple(sorted(int(link[1]) for link in links if link))
        ns = number(place / "read_latency", most=MOST_ACCESS, missing=0)
        if initiators and ns:  # firmware may leave any of them out
            return initiators, float(ns)
    return None
