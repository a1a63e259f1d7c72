"""A synthetic capture from Python: `ptanalyze.synth`."""

from pathlib import Path
from typing import Any

from ...formats.capture import Capture, PathLike, load
from .parameters import Parameters, refused, whole_pages


def synth(
    directory: PathLike, size: int | str | None = None, *, trace: bool = True, **parameters: Any
) -> Capture:
    """Make the capture of a synthetic workload in a new directory, and load it.

    size        of the dataset: bytes, or "64M"; None: that of the graph that `pattern` names
    parameters  of synth.parameters.Parameters (`ptanalyze synth --help` says what they mean)
    """
    from .capture import synthesize  # imports Numba; `import ptanalyze` does not need it

    known = Parameters.__dataclass_fields__
    for name, value in parameters.items():
        if name not in known:
            raise refused(name, value, f"no such parameter; there are: {', '.join(known)}")
    asked = Parameters(whole_pages(size) if isinstance(size, str) else size, **parameters)
    synthesize(asked, Path(directory), trace=trace)
    return load(directory)
