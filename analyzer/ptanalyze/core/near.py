"""A name that somebody may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, known: Iterable[str]) -> str:
    """ "did you mean mitosis? " where a known name is near, else ""."""
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}? " if near else ""
