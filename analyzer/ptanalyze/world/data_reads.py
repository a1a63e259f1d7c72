"""Where the data of the walks are while a World is replayed: the same under every policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .data_moves import by_host

if TYPE_CHECKING:
    from ..core.walks import Reads
    from .world import World


class DataReads:
    """Counts of walks by their data's node: `count` is called with all Reads of a World, in order.

    counts  int64[nodes, nodes]  so far, by [walker's node, node of the data page], of a sample for the whole
    """

    def __init__(self, world: World) -> None:
        from ..kernels.data_reads import Pages

        data = world.data
        self.world, self.step = world, 0
        self.pages = Pages(data.guest.copy(), data.host.copy(), data.host_row, by_host(world))
        self.scales = world.weights.of_cells if world.weights else np.ones(1)
        self._counts = np.zeros((world.nodes, world.nodes))

    def count(self, reads: Reads, first: int) -> None:
        """Walks first, first + 1, ... of the stream."""
        from ..kernels.data_reads import count_data

        history = self.world.history
        where = self.world.placement.cpu_node, reads, history.rows.of_region, self.world.space.tables
        now = self.pages, first, self.step, self.scales, self._counts
        self.step = count_data(*where, history.steps, *now)

    @property
    def counts(self) -> np.ndarray:
        counts: np.ndarray = np.rint(self._counts).astype(np.int64)
        return counts
