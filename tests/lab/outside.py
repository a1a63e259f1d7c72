"""What a guest's own /proc listed, to compare with what is found from outside."""

import re

COME_AND_GO = {"grep", "sleep"}  # of the machine's scripts


def listed(text):
    """{(pid, name)} of processes with memory, from `grep -E '^(Name|Pid|VmPTE)' /proc/[0-9]*/status`."""
    rows = re.findall(r"^/proc/(\d+)/status:(\w+):\t\s*(.*?)(?: kB)?$", text, re.M)
    names = {int(pid): value for pid, what, value in rows if what == "Name"}
    with_memory = {int(pid) for pid, what, _ in rows if what == "VmPTE"}
    return {(pid, names[pid]) for pid in with_memory if names[pid] not in COME_AND_GO}


def found(processes):
    """The same of GuestProcesses."""
    return {(one.pid, one.name) for one in processes if one.name not in COME_AND_GO}


def is_the_dumped_one(one, tree):
    """A GuestProcess has the tables of `tree`, the process's own dump made inside, and maps as much."""
    assert one.cr3 == int(tree.frame[0]) * 4096
    assert sum(one.leaf.values()) == (tree.level == 1).sum()
    assert sum(one.upper.values()) == (tree.level > 1).sum()
    assert one.unread == 0


def toucher(processes, log):
    """The GuestProcess of the toucher whose log this is."""
    (pid,) = re.findall(r"^pid (\d+)$", log, re.M)
    (one,) = [one for one in processes if one.pid == int(pid)]
    assert one.name == "toucher"
    return one
