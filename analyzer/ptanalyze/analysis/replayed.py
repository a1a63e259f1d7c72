"""All tables of one run of replays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pandas import DataFrame

from ..core.machine import Machine
from ..cost.result import Result
from . import answers as frames


@dataclass(frozen=True)
class Replayed:
    """Results of replays; each table is made when first asked for.

    results  [result.Result], the baseline's first: integer arrays, where tables are not enough
    """

    results: list[Result]
    machine: Machine

    @cached_property
    def frame(self) -> DataFrame:
        """frames.whatif_frame: one row a policy."""
        return frames.whatif_frame(self.results, self.machine)

    @cached_property
    def reads(self) -> DataFrame:
        """frames.reads_frame: by policy, dimension, level, reader, server, and cache or DRAM."""
        return frames.reads_frame(self.results)

    @cached_property
    def leaves(self) -> DataFrame:
        """frames.leaves_frame: walks by policy, socket and Local-Local ... Remote-Remote."""
        return frames.leaves_frame(self.results)

    @cached_property
    def calls(self) -> DataFrame:
        """frames.calls_frame: by policy and kind of system call."""
        return frames.calls_frame(self.results)

    @cached_property
    def timeline(self) -> DataFrame:
        """frames.timeline_frame: by policy and window; empty without windows."""
        return frames.timeline_frame(self.results)
