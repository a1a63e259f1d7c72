"""What `survey` and `survey --guest` print of page tables by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..capture.live.survey import Placed


def by_node(numbers: Mapping[str, float]) -> str:
    """ "0:12 1:3"."""
    return " ".join(f"{node}:{number:.15g}" for node, number in numbers.items())


def as_record(one: Placed) -> dict[str, object]:
    return {
        "remote_share": one.remote_share,
        "upper_remote_share": one.upper_remote_share,
        "leaf_tables": {str(node): count for node, count in sorted(one.leaf.items())},
        "upper_tables": {str(node): count for node, count in sorted(one.upper.items())},
        "runs_on": {str(node): share for node, share in one.runs.items()},
    }


def flat(record: Mapping[str, Any]) -> dict[str, object]:
    """A record as a row of a table: mappings by node as text."""
    return {key: by_node(value) if isinstance(value, dict) else value for key, value in record.items()}


def as_row(one: Placed) -> dict[str, str | float | None]:
    leaf = sum(one.leaf.values())
    shares = {str(node): round(100 * count / leaf) for node, count in sorted(one.leaf.items())}
    return {
        "remote %": percent(one.remote_share),
        "upper remote %": percent(one.upper_remote_share),
        "leaf tables by node, %": by_node(shares),
    }


def percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
