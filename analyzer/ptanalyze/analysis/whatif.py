"""Effects and costs of other policies: a capture's walks replayed under each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from ..formats.capture import CaptureLike
from .asked_policies import Policies, asked_or_usual
from .opened import opened
from .processes import together
from .refusals import told
from .replay import chosen, replay_world
from .replayed import Replayed
from .setup import Options, Setup, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.result import Result
    from ..policies import Policy


def replay(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Options],
) -> Replayed:
    """Replay the capture's walks under policies: all tables of a single run.

    policies  "hydra", "ptemagnet+hydra", ("hydra", {"prefetch": 3}), or a policies.Policy of your own in
              place of a name; or a list of these; none: asked_policies.asked_or_usual
    setup     machine, costs, placement of threads; or its fields as keyword arguments, with names and files
              (setup.Options): `replay("app", "hydra", machine="hydra-haswell", contended=True)`
    """
    how, known = setup_of(setup, options), opened(capture)
    refused: dict[str, str] = {}
    results = replay_snapshot(
        known.snapshot,
        known.trace,
        asked_or_usual(policies, known.snapshot),
        how,
        cache_dir=known.capture.cache,
        provenance=known.provenance,
        refused=refused,
        others=together(known.capture, how.weigh),
    )
    return Replayed(results, how.machine, refused)


def whatif(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Options],
) -> DataFrame:
    """Effects and costs of policies: a row per policy, the baseline's first. Arguments as in `replay`.

    Columns: result.Result.row; shares are of walks. speedup_low, speedup and speedup_high are NaN without a
    trace. attrs["machine"]: latencies, for plots.roofline.
    """
    return replay(capture, policies, setup, **options).frame


def reads(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Options],
) -> DataFrame:
    """Reads of page-table entries between nodes: policy, params, dimension, level, reader, server, from,
    count. Arguments as in `replay`; details: answers.reads_frame."""
    return replay(capture, policies, setup, **options).reads


def replay_snapshot(
    snapshot: Snapshot,
    trace: Trace | None,
    policies: Sequence[tuple[Policy | str, Mapping[str, Any]]],
    setup: Setup,
    *,
    cache_dir: str | PathLike[str] | None = None,
    provenance: Mapping[str, str] | None = None,
    refused: dict[str, str] | None = None,
    others: Sequence[Snapshot] = (),
) -> list[Result]:
    """[Result]: the baseline's first, then those of all other `policies`.

    policies   [(Policy, or a name as "hydra" or "ptemagnet+hydra", parameters as {key: value or text})]
    cache_dir  directory where the walk stream is kept, None: not kept
    refused    {}: policies that the capture does not allow are left out, added with the reason, by name, and
               noted in the results; None: RefusedError for the first
    others     processes.together
    Without a trace (None) every mapped page counts once for each node; policies that depend on order are
    refused. Raises UsageError for impossible parameters, combinations and placements, and where all policies
    are refused.
    """
    world = setup.world(snapshot, trace, cache_dir)
    plans = chosen(policies, world, setup)
    results = replay_world(
        world, plans, setup, provenance, refused, [setup.world(one, None) for one in others]
    )
    return told(results, refused or {}, len(results) - len(plans) + len(policies))
