"""Opening a capture: the directory, its manifest, and the nouns in it, each read on first use."""

import hashlib
import os
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ..core.errors import (
    DEFAULT_SAMPLE,
    CaptureError,
    UsageError,
    as_root,
    bundled,
    listing,
    meant,
    plural,
    printable,
)
from ..core.safe_files import own_directory, read_inside, unpack_ahead, user_cache
from ..core.snapshot import Snapshot, Tree
from ..core.trace import Trace
from .heat import FILE as HEAT
from .heat import read_heat
from .record import MANIFEST, PAGES, TRACE, Manifest, damage, read_manifest
from .snapshot import HostDump, read_snapshot, read_vm
from .trace import open_trace

PathLike: TypeAlias = "str | os.PathLike[str]"
CaptureLike: TypeAlias = "PathLike | Capture | None"
SEE_ALL = "`ptanalyze check` says whether more is; take another copy"
TABLES, ENTRIES = "gpt.tables", "gpt.entries"
NESTED = "ept.tables"
VM = "vm.json"
PROCESS = re.compile(r"pid-([1-9]\d{0,9})", re.ASCII)  # a capture inside a capture: of another process


@dataclass(frozen=True)
class Capture:
    """A capture directory."""

    directory: Path
    manifest: Manifest

    def __repr__(self) -> str:
        return f"Capture({str(self.directory)!r}: {', '.join(self._held())})"

    def _held(self) -> list[str]:
        held = {
            "page tables": self.has_snapshot,
            "trace": self.has_trace,
            "heat": self.has_heat,
            "VM": self.has_vm,
            "trial of page sizes": self.pages is not None,
        }
        return [what for what, has in held.items() if has]

    def _repr_html_(self) -> str:
        """For a notebook: what it holds, and what to ask; nothing of its files is read."""
        size = sum(file.bytes for file in self.manifest.files.values())
        kinds = {"page tables": "classify, page_tables, walk", "trace": "whatif, advise, timeline"}
        return listing(
            f"Capture {self.directory.name}",
            {
                "holds": ", ".join(self._held()),
                "size": f"{size / 2**20:,.1f} MiB in {plural(len(self.manifest.files), 'file')}",
                "ask": ", ".join(kinds[what] for what in self._held() if what in kinds) or "join",
            },
        )

    @property
    def source(self) -> dict[str, str]:
        """Provenance of what is made from it."""
        return {"capture": str(self.directory)}

    @property
    def has_snapshot(self) -> bool:
        return TABLES in self.manifest.files

    @property
    def has_trace(self) -> bool:
        return TRACE in self.manifest.files

    @property
    def has_heat(self) -> bool:
        return HEAT in self.manifest.files

    @property
    def pages(self) -> Path | None:
        """File of its trial of page sizes (`record --pages`), None without one."""
        return self.directory / PAGES if PAGES in self.manifest.files else None

    @property
    def has_vm(self) -> bool:
        return VM in self.manifest.files

    @cached_property
    def vm(self) -> HostDump:
        """The VM as its host sees it (HostDump); UsageError if it is not a capture of a VM."""
        if not self.has_vm:
            what = "not a capture of a VM; make one with `ptanalyze dump vm PID`"
            raise UsageError(f"{self.directory}: {what}")
        self._must_be_whole()
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
        snapshot = read_snapshot(self.directory, NESTED in self.manifest.files)
        return replace(snapshot, heat=read_heat(self.directory / HEAT)) if self.has_heat else snapshot

    @property
    def trees(self) -> dict[str, Tree]:
        """Snapshot.trees, or {"ePT": tree} of a VM's host side alone."""
        return {"ePT": self.vm.tree} if self.has_vm and not self.has_snapshot else self.snapshot.trees

    @cached_property
    def trace(self) -> Trace:
        """The capture's Trace; UsageError if it holds only page tables."""
        if not self.has_trace:
            what = "holds no trace; record one with `ptanalyze record -- COMMAND`"
            raise UsageError(f"{self.directory}: {what}")
        self._must_be_whole()
        return open_trace(self.directory / TRACE, self.cache)

    @cached_property
    def processes(self) -> dict[int, "Capture"]:
        """{PID: Capture} of the other processes that were captured with this one, pid-PID/ inside."""
        named = ((PROCESS.fullmatch(path.name), path) for path in self.directory.iterdir())
        inside = {int(name[1]): one for name, one in named if name and one.is_dir() and not one.is_symlink()}
        return {pid: Capture(path, read_manifest(path)) for pid, path in sorted(inside.items())}

    @property
    def lost(self) -> list[int]:
        """Processes that were captured with this one and are not inside."""
        told = self.manifest.provenance.get("processes")
        listed = [pid for pid in told if isinstance(pid, int)] if isinstance(told, list) else []
        return [pid for pid in listed if pid not in self.processes]

    @property
    def members(self) -> dict[int, "Capture"]:
        """{PID: Capture} of this process and the others inside; 0 for its own PID where that is not known.

        CaptureError if one is missing.
        """
        if self.lost:
            raise CaptureError(self.directory / f"pid-{self.lost[0]}", "capture", "missing", SEE_ALL)
        told = self.manifest.provenance.get("pid")
        own = told if isinstance(told, int) else 0
        return {own: self, **{pid: one for pid, one in self.processes.items() if pid != own}}

    def _must_be_whole(self) -> None:
        """CaptureError for a file that is not as it was sealed."""
        for name, why in self.damaged.items():
            raise CaptureError(self.directory / name, "contents", why, f"damaged; {SEE_ALL}")

    @cached_property
    def damaged(self) -> dict[str, str]:
        """{file: how it differs from when it was sealed}; empty for a whole capture. Contents of
        its trace are not compared: each piece of that has its own checksum."""
        found = {
            name: damage(self.directory / name, sealed, contents=name != TRACE)
            for name, sealed in self.manifest.files.items()
        }
        return {name: why for name, why in found.items() if why}

    @property
    def untraced_children(self) -> tuple[int, list[str]]:
        """(number, names) of the children seen to run and not traced; short-lived ones go unseen."""
        said = self.manifest.provenance.get("untraced_children")
        if not isinstance(said, dict) or not isinstance(said.get("seen"), int):
            return 0, []
        names = said.get("names")
        return said["seen"], [printable(str(one)) for one in names] if isinstance(names, list) else []

    @property
    def identity(self) -> str:
        """What tells this capture from others: the digest of its manifest, which has all checksums."""
        return hashlib.sha256(read_inside(self.directory / MANIFEST)).hexdigest()[:32]

    @cached_property
    def cache(self) -> Path | None:
        """Directory for data derived from this capture in the user's cache, None where that is not the
        user's alone. Nothing is read from the capture's own directory, nor written to it."""
        if (place := user_cache()) is None or not own_directory(place):
            return None
        place.chmod(0o700)
        return place / self.identity if own_directory(place / self.identity) else None


def open_capture(directory: PathLike) -> Capture:
    """The Capture in a directory, or the bundled sample of that name where there is no such directory.

    Its manifest is read and validated, nothing else yet.
    """
    asked, samples = Path(directory), bundled_samples()
    if asked.is_dir():
        unpack_ahead(asked / ENTRIES, asked / TRACE)
        return Capture(asked, read_manifest(asked))
    if str(directory) in samples:
        return open_capture(samples[str(directory)])
    if asked.is_file():
        raise UsageError(f"{asked}: {no_directory(asked)}")
    here = [path.parent.name for path in asked.parent.glob(f"*/{MANIFEST}")]
    near = meant(asked.name, [*here, *samples])
    raise UsageError(
        f"{asked}: no such capture directory; {near}`ptanalyze record -- COMMAND` makes one, and "
        f"there are bundled samples: {', '.join(samples)}"
    )


def no_directory(path: Path) -> str:
    """What a file is in place of a capture, and the way out."""
    if (path.parent / MANIFEST).is_file():
        return f"a file of a capture; name the directory: {path.parent}"
    if os.access(path, os.X_OK):
        run = path if path.is_absolute() or path.parent != Path() else f"./{path}"
        return f"a program, not a capture; record it: {as_root()} record -- {run}"
    return "a file, not a capture; `ptanalyze import` takes traces and dumps of other tools"


def bundled_samples() -> dict[str, Path]:
    """{name: directory} of the captures that travel with the package."""
    return {path.parent.name: path.parent for path in sorted(bundled("samples").glob(f"*/{MANIFEST}"))}


def default_capture() -> tuple[Capture, str]:
    """(Capture, a line that says which): this directory, the newest capture in it, or the bundled sample."""
    here = Path()
    if (here / MANIFEST).is_file():
        return open_capture(here), f"this directory's capture: {here.resolve().name}"
    manifests = [path for path in here.glob(f"*/{MANIFEST}") if path.is_file()]
    if manifests:
        newest = max(manifests, key=lambda path: path.stat().st_mtime)
        return open_capture(newest.parent), f"newest capture here: {newest.parent}"
    sample = bundled_samples().get(DEFAULT_SAMPLE)
    if sample is None:
        raise UsageError(f"no capture in {here.resolve()} and no bundled sample; record one first")
    return open_capture(sample), ""


def load(capture: CaptureLike = None) -> Capture:
    """The Capture in a directory; .snapshot and .trace are read on first use.

    capture  a directory; where there is none of that name, a bundled sample, such as "lookup"; None: this
             directory, the newest capture in it, else the sample "embeddings"
    """
    if isinstance(capture, Capture):
        return capture
    return default_capture()[0] if capture is None else open_capture(capture)
