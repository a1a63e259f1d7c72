"""Opening a capture: the directory, its manifest, and the nouns in it, each read on first use."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ..core.bundled import DEFAULT_SAMPLE, bundled
from ..core.errors import CaptureError, UsageError
from ..core.snapshot import Snapshot
from ..core.trace import Trace
from .capture_dir import MANIFEST, TRACE, Manifest, read_manifest
from .snapshot_file import read_snapshot
from .vm_file import HostDump, read_vm

PathLike: TypeAlias = "str | os.PathLike[str]"
CaptureLike: TypeAlias = "PathLike | Capture | None"
TABLES = "gpt.tables"
VM = "vm.json"


@dataclass(frozen=True)
class Capture:
    directory: Path
    manifest: Manifest

    def __repr__(self) -> str:
        held = {"page tables": self.has_snapshot, "trace": self.has_trace, "VM": self.has_vm}
        return f"Capture({str(self.directory)!r}: {', '.join(what for what, has in held.items() if has)})"

    @property
    def has_snapshot(self) -> bool:
        return TABLES in self.manifest.files

    @property
    def has_trace(self) -> bool:
        return TRACE in self.manifest.files

    @property
    def has_vm(self) -> bool:
        return VM in self.manifest.files

    @cached_property
    def vm(self) -> HostDump:
        """The VM as its host sees it (HostDump); UsageError if it is not a capture of a VM."""
        if not self.has_vm:
            raise UsageError(
                f"{self.directory}: not a capture of a VM; make one with `ptanalyze dump vm PID`"
            )
        return read_vm(self.directory)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The capture's Snapshot; UsageError if it holds only a trace."""
        if self.has_vm and not self.has_snapshot:
            raise UsageError(
                f"{self.directory}: holds a VM's nested tables alone; join it with its guest's capture: "
                "`ptanalyze join HOST GUEST -o VM`"
            )
        if not self.has_snapshot:
            raise UsageError(
                f"{self.directory}: holds no page tables; record them with `ptanalyze record` "
                "or dump them with `ptanalyze dump process PID`"
            )
        self._must_be_whole()
        return read_snapshot(self.directory)

    @cached_property
    def trace(self) -> Trace:
        """The capture's Trace; UsageError if it holds only page tables."""
        if not self.has_trace:
            raise UsageError(
                f"{self.directory}: holds no trace; record one with `ptanalyze record -o DIR -- COMMAND`"
            )
        self._must_be_whole()
        from .trace_index import open_trace  # imports Numba; reading page tables does not need it

        return open_trace(self.directory / TRACE, self.cache)

    def _must_be_whole(self) -> None:
        """CaptureError for a file that is not as long as it was sealed; `check` compares contents too."""
        for name, sealed in self.manifest.files.items():
            path = self.directory / name
            size = path.stat().st_size if path.exists() else "no such file"
            if size != sealed.bytes:
                why = f"sealed with {sealed.bytes} bytes; `ptanalyze check` says what else is damaged"
                raise CaptureError(path, "size", size, why)

    @cached_property
    def cache(self) -> Path:
        """Directory for data derived from this capture: inside the user's captures, else in their cache."""
        inside = self.directory / ".cache"
        own = self.directory.resolve().parent != bundled("samples").resolve()
        if own and os.access(self.directory, os.W_OK):
            inside.mkdir(mode=0o700, exist_ok=True)
            return inside
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        identity = hashlib.sha256((self.directory / MANIFEST).read_bytes()).hexdigest()[:16]
        outside = root / "ptanalyze" / identity
        try:
            outside.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return Path(tempfile.mkdtemp(prefix="ptanalyze-"))
        return outside


def open_capture(directory: PathLike) -> Capture:
    """The Capture in a directory, or the bundled sample of that name where there is no such directory.

    Its manifest is read and validated, nothing else yet.
    """
    asked, samples = Path(directory), bundled_samples()
    if asked.is_dir():
        return Capture(asked, read_manifest(asked))
    if str(directory) in samples:
        return open_capture(samples[str(directory)])
    raise UsageError(
        f"{asked}: no such capture directory; `ptanalyze record -o DIR -- COMMAND` makes one, and there are "
        f"bundled samples: {', '.join(samples)}"
    )


def bundled_samples() -> dict[str, Path]:
    """{name: directory} of the captures that travel with the package."""
    return {path.parent.name: path.parent for path in sorted(bundled("samples").glob(f"*/{MANIFEST}"))}


def default_capture(where: PathLike = ".") -> tuple[Capture, str]:
    """(Capture, a line that says which): the newest capture in `where`, else the bundled sample."""
    manifests = [path for path in Path(where).glob(f"*/{MANIFEST}") if path.is_file()]
    if manifests:
        newest = max(manifests, key=lambda path: path.stat().st_mtime)
        return open_capture(newest.parent), f"newest capture here: {newest.parent}"
    sample = bundled_samples().get(DEFAULT_SAMPLE)
    if sample is None:
        raise UsageError(f"no capture in {Path(where).resolve()} and no bundled sample; record one first")
    return open_capture(sample), f"no capture here, so the bundled sample: {DEFAULT_SAMPLE}"


def load(capture: CaptureLike = None) -> Capture:
    """The Capture in a directory; .snapshot and .trace are read on first use.

    capture  a directory; where there is none of that name, a bundled sample: "lookup", "sysbench-memory",
             "vm-numa-visible" or "vm-numa-oblivious"; None: the newest capture here, else "lookup"
    """
    if isinstance(capture, Capture):
        return capture
    return default_capture()[0] if capture is None else open_capture(capture)
