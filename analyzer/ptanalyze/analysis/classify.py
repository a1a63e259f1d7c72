"""Locality of a capture's leaf entries: of its mapped pages, or of the walks of its trace on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np

from ..formats.capture import Capture, CaptureLike, load
from ..world.address_space import address_space
from .answers import classes_frame
from .heat_classes import classify_heat
from .leaf_classes import Classification, classify_pages, classify_walks
from .opened import provenance_of
from .setup import Options, Setup, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame


def classify(
    capture: CaptureLike = None,
    *,
    weight: str = "leaf",
    by: str = "all",
    setup: Setup | None = None,
    **options: Unpack[Options],
) -> DataFrame:
    """Locality of leaf entries, seen from each socket: group, socket, class, count, share, weight.

    weight  "leaf": each leaf entry once, "4k": each 4 KiB page once, "walks": each TLB miss of the trace on
            the setup's machine with threads where the setup places them, "heat": each leaf entry by its
            walks, estimated from samples of accessed bits; share_low and share_high are their precision
    by      "all", "vma" or (walks only) "thread"
    class   Local-Local ... Remote-Remote, guest first; native Local and Remote
    vMitosis (ASPLOS '21), section 2.2, Figure 2. attrs["unresolved"]: {weight: {reason: count}}.
    """
    known = load(capture)
    classes, how = classified(known, weight, by, setup_of(setup, options))
    return classes_frame([classes], provenance_of(known) | how)


def classified(capture: Capture, weight: str, by: str, setup: Setup) -> tuple[Classification, dict[str, str]]:
    """(Classification behind `classify`; for walks also {"machine", "placement"})."""
    if weight == "heat":
        return classify_heat(address_space(capture.snapshot, np.zeros(0, np.uint64)), by=by), {}
    if weight != "walks":
        return mapped_locality(capture, weight=weight, by=by), {}
    classes, how = walk_locality(capture, setup, by=by)
    known = {"machine": setup.machine.name, "placement": how}
    return classes, known | ({"sample": str(setup.sample)} if setup.sample else {})


def mapped_locality(capture: Capture, *, weight: str = "leaf", by: str = "all") -> Classification:
    """Classification of every mapped page of a Capture; see leaf_classes.classify_pages."""
    return classify_pages(address_space(capture.snapshot, np.zeros(0, np.uint64)), weight=weight, by=by)


def walk_locality(capture: Capture, setup: Setup, *, by: str = "all") -> tuple[Classification, str]:
    """(Classification, placement of threads) of the trace's TLB misses on the setup's machine."""
    world = setup.world(capture.snapshot, capture.trace, capture.cache)
    where = world.space, world.stream, world.placement
    classes = classify_walks(*where, trace=capture.trace, by=by, sampling=world.sampling)
    return classes, world.placement.how
