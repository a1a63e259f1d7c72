"""linux: as captured. Page tables, a VM's host tables too, are where the kernel put them and stay there."""

from .base import Policy
from .fixed_copies import AS_CAPTURED

POLICY = Policy(
    "linux",
    "as captured: every table page on the node the dump found it on",
    *AS_CAPTURED,
    source="Linux 6.x: page tables are never moved; KVM allocates ePT pages on the faulting vCPU's node",
    takes="today: nothing to do, it runs like this",
)
