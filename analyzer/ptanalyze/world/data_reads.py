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

    counts  int64[nodes, nodes]  so far, by [walker's node, node of the data page]
    """

    def __init__(self, world: World) -> None:
        from ..kernels.data_moves import Pages

        data = world.data
        self.world, self.step = world, 0
        self.pages = Pages(data.guest.copy(), data.host.copy(), data.host_row, by_host(world))
        self.counts = np.zeros((world.nodes, world.nodes), np.int64)

    def count(self, reads: Reads, first: int) -> None:
        """Walks first, first + 1, ... of the stream."""
        from ..kernels.data_moves import count_data

        history = self.world.history
        where = self.world.placement.cpu_node, reads, history.rows.of_region, self.world.space.tables
        now = self.pages, first, self.step, self.counts
        self.step = count_data(*where, history.steps, *now)
