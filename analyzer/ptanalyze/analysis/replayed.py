"""All tables of a run of replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..core.errors import lines
from ..core.machine import Machine
from ..cost.result import Result

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Replayed:
    """Results of replays; each table is made, and pandas imported, when first asked for.

    results  [result.Result], the baseline's first: integer arrays behind the tables
    refused  {policy: why the capture does not allow it}
    """

    results: list[Result]
    machine: Machine
    refused: Mapping[str, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """For a notebook: a row per policy, and where the other tables are."""
        names = [
            "policy",
            "params",
            "speedup_low",
            "speedup",
            "speedup_high",
            "cycles_per_walk",
            "leaf_LL_share",
        ]
        table = str(self.frame[names].to_html(index=False, float_format="{:,.3f}".format, border=0))
        more = "All columns: .frame; also .reads, .leaves, .calls, .timeline."
        return table + lines([*(f"{name}: {why}" for name, why in self.refused.items()), more])

    @cached_property
    def frame(self) -> DataFrame:
        """answers.whatif_frame: one row per policy."""
        from . import answers

        return answers.whatif_frame(self.results, self.machine)

    @cached_property
    def reads(self) -> DataFrame:
        """answers.reads_frame: by policy, dimension, level, reader, server, and cache or DRAM."""
        from . import answers

        return answers.reads_frame(self.results)

    @cached_property
    def leaves(self) -> DataFrame:
        """answers.leaves_frame: walks by policy, socket and Local-Local ... Remote-Remote."""
        from . import answers

        return answers.leaves_frame(self.results)

    @cached_property
    def calls(self) -> DataFrame:
        """answers.calls_frame: by policy and kind of system call."""
        from . import answers

        return answers.calls_frame(self.results)

    @cached_property
    def timeline(self) -> DataFrame:
        """answers.timeline_frame: by policy and window; empty without windows."""
        from . import answers

        return answers.timeline_frame(self.results)
