"""Check of the samples of accessed bits in a capture."""

from ...core.snapshot import Snapshot
from ...world.address_space import known_pages
from .finding import NOTE, Finding, finding

REASON = (
    "used when they were sampled, unmapped or of another size when the tables were read: they are left out"
)


def check_heat(snapshot: Snapshot) -> Finding:
    """Whether the pages that samples found used are in the page tables."""
    assert snapshot.heat is not None
    pages = len(snapshot.heat.address)
    return finding(
        "heat: pages mapped", pages, pages - known_pages(snapshot.guest, snapshot.heat), REASON, NOTE
    )
