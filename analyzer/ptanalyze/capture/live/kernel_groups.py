"""Groups of CPUs that share a node, socket, cache or core, according to this machine's kernel."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ...core.errors import UsageError
from .topology import parse_cpus

SYSTEM = Path("/sys/devices/system")
SHARED = {  # of /sys/devices/system/cpu/cpuN, Documentation/ABI/stable/sysfs-devices-system-cpu
    "sockets": "topology/core_siblings_list",
    "L3 caches": "cache/index3/shared_cpu_list",
    "cores (hyperthreads)": "topology/thread_siblings_list",
}
Groups: TypeAlias = list[tuple[int, ...]]


def kernel_groups(cpus: Sequence[int], system: Path = SYSTEM) -> dict[str, Groups]:
    """{"NUMA nodes" or another shared resource: groups of these CPUs, as in vcpu_groups.groups}

    Resources that the kernel does not show are left out. UsageError for a CPU that it does not know.
    """
    for cpu in cpus:
        if not (system / f"cpu/cpu{cpu}").is_dir():
            raise UsageError(f"CPU {cpu}: not of this machine, so there is nothing to compare its group with")
    lists = {"NUMA nodes": sorted((system / "node").glob("node[0-9]*/cpulist"))}
    for kind, name in SHARED.items():
        lists[kind] = [system / f"cpu/cpu{cpu}" / name for cpu in cpus]
    return {
        kind: restricted(paths, cpus)
        for kind, paths in lists.items()
        if paths and all(path.exists() for path in paths)
    }


def restricted(paths: Iterable[Path], cpus: Sequence[int]) -> Groups:
    lists = {tuple(sorted(set(parse_cpus(path.read_text())) & set(cpus))) for path in paths}
    return sorted(group for group in lists if group)


def mirrored(groups: Groups, kernel: Mapping[str, Groups]) -> list[str]:
    """Kinds with exactly these groups."""
    return [kind for kind, own in kernel.items() if own == groups]
