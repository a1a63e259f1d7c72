"""What-if results as a table that shows the columns that matter."""

from pandas import DataFrame


class Answers(DataFrame):  # type: ignore[misc]
    """Results with all their columns, few of which are shown; what is taken from it is a plain DataFrame."""

    _constructor = property(lambda self: DataFrame)

    def _shown(self) -> DataFrame:
        """Policies, their speed-ups, and MiB at their peak beyond the baseline's."""
        total = self[["pt_bytes_peak", "ept_bytes", "aside_bytes", "held_bytes"]].sum(axis=1)
        more = (total - total[self["policy"] == self["baseline"]].head(1).sum()) / 2**20
        named = ["policy", "params"] if self["policy"].duplicated().any() else ["policy"]
        ends = (
            ["speedup", "speedup_low", "speedup_high"] if self["speedup"].notna().any() else ["walk_cycles"]
        )
        return self[[*named, *ends, *self.columns.intersection(["over"])]].assign(memory_mib=more).round(3)

    def __repr__(self) -> str:
        return f"{self._shown()!r}\n{len(self.columns)} columns: .columns"

    def _repr_html_(self) -> str:
        return f"{self._shown()._repr_html_()}<p>{len(self.columns)} columns: .columns</p>"
