"""Arrays that a thread uses for one batch after the other: new ones would be new pages, each a page fault."""

import numpy as np


class Scratch:
    """Arrays by name; each is valid until the next of its name is asked for."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def empty(self, name: str, n: int, dtype: type) -> np.ndarray:
        """`dtype`[n] of any contents; a name always has the same dtype."""
        array = self._arrays.get(name)
        if array is None or len(array) < n:
            array = self._arrays[name] = np.empty(n + n // 8, dtype)
        return array[:n]

    def zeros(self, name: str, n: int, dtype: type) -> np.ndarray:
        array = self.empty(name, n, dtype)
        array.fill(0)
        return array
