"""What Linux shows of ACPI's HMAT: how fast each node's memory is for the nodes that reach it best.

Directory NODE/access1/initiators, else access0 (Documentation/admin-guide/mm/numaperf.rst): links to the
nodes that read this memory fastest, with `read_latency` (ns) and `read_bandwidth` (MiB/s) of those alone.
access1 knows nodes with CPUs only, access0 also devices that read memory. Slower pairs are not shown.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import CaptureError

CLASSES = ("access1", "access0")
NUMBER = re.compile(r"\d{1,9}", re.ASCII)
NODE = re.compile(r"node(\d{1,4})", re.ASCII)
MIB = 1 << 20


@dataclass(frozen=True)
class Access:
    """Reads of one node's memory: by which nodes, ns, GB/s (0.0: not told)."""

    initiators: tuple[int, ...]
    ns: float
    gb_per_s: float


def read_hmat(nodes: Path) -> dict[int, Access]:
    """{node: Access} of a directory such as /sys/devices/system/node; nodes without a latency are left out.

    CaptureError names the file whose content is no number.
    """
    named = ((NODE.fullmatch(path.name), path) for path in sorted(nodes.glob("node[0-9]*")))
    found = {int(name[1]): access_of(path) for name, path in named if name}
    return {node: access for node, access in sorted(found.items()) if access is not None}


def access_of(node: Path) -> Access | None:
    for name in CLASSES:
        place = node / name / "initiators"
        links = (NODE.fullmatch(path.name) for path in place.iterdir()) if place.is_dir() else ()
        initiators = tuple(sorted(int(link[1]) for link in links if link))
        ns = number(place / "read_latency")
        if initiators and ns:
            return Access(initiators, ns, number(place / "read_bandwidth") * MIB / 1e9)
    return None


def number(path: Path) -> float:
    """A file's number, 0.0 where there is no file: firmware may leave any of them out."""
    try:
        text = path.read_bytes()[:64].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return 0.0
    except OSError as error:
        raise CaptureError(path, "contents", "none", f"cannot be read: {error.strerror}") from None
    if not NUMBER.fullmatch(text):
        raise CaptureError(
            path, "contents", repr(text[:30]), "expected a whole number, as the kernel writes it"
        )
    return float(text)
