"""Pages about which a dump and pagemap disagree, told so that someone who was not there can judge them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...core.snapshot import FRAME, words
from ...core.snapshot import PAGEMAP_PRESENT as PRESENT
from ...formats.vm_file import HostDump
from ..check.finding import NOTE, Finding

EACH = 3  # examples of each reason
NOWHERE = np.uint64((1 << 64) - 1)  # in place of a virtual address: in no slot
SIGNS = ("kernel", "cpu", "nested_paging", "page_type", "encryption_bit", "stopped", "retries", "parameters")


@dataclass(frozen=True)
class Piece:
    """512 pages of guest-physical memory: those of a level-1 table, or a part of a huge page.

    base    first guest-physical address; frames  int64[512] of each page, -1 unmapped
    table   its index in the tree; slot  of the huge page's entry, None of a level-1 table
    """

    base: int
    frames: np.ndarray
    table: int
    slot: int | None = None

    @property
    def huge(self) -> bool:
        return self.slot is not None


class Mismatches:
    """The first pages of each reason, and whether all frames differ in the same way."""

    def __init__(self, host: HostDump) -> None:
        self.host, self.found = host, 0
        self.examples: dict[int, list[str]] = {}
        self.differences: set[int] = set()

    def add(
        self, piece: Piece, verdict: np.ndarray, virtual: np.ndarray, seen: np.ndarray, agree: int
    ) -> None:
        """verdict[512], virtual addresses uint64[512] (or NOWHERE), pagemap words uint64[512]."""
        wrong = np.flatnonzero((verdict != agree) & (piece.frames >= 0))
        self.found += len(wrong)
        for reason in np.unique(verdict[wrong]).tolist():
            kept = self.examples.setdefault(reason, [])
            for page in wrong[verdict[wrong] == reason][: EACH - len(kept)].tolist():
                kept.append(self.told(piece, page, int(virtual[page]), int(seen[page])))
        there = wrong[(seen[wrong] >> np.uint64(63)).astype(bool)]
        if len(self.differences) < 2:
            other = piece.frames[there] ^ (seen[there] & FRAME).astype(np.int64)
            self.differences |= set(np.unique(other)[:2].tolist())

    def told(self, piece: Piece, page: int, virtual: int, word: int) -> str:
        """One page: the entry, bit by bit, and what pagemap has instead."""
        tree = self.host.tree
        slot = page if piece.slot is None else piece.slot
        entry, level = int(tree.entries[piece.table][slot]), int(tree.level[piece.table])
        ept = tree.encoding == "ept" or self.host.facts.get("nested_paging") == "ept"
        where = f"guest-physical {piece.base + page * 4096:#x}"
        bits, mapped = words(entry, level, ept), int(piece.frames[page])
        here = f"entry {entry:#018x} of level {level} ({bits}): frame {mapped:#x}"
        if virtual == int(NOWHERE):
            return f"{where}: {here}; in no slot"
        frame = f"frame {word & FRAME:#x}" if word & PRESENT else "not present"
        return f"{where}: {here}; pagemap of {virtual:#x}: {word:#018x}, {frame}"

    def findings(self, reasons: dict[int, str]) -> Iterator[Finding]:
        """Yield examples, by reason, and what else belongs into a report; nothing where all agrees."""
        for reason in (one for one in reasons if one in self.examples):
            for text in self.examples[reason]:
                yield Finding("live: for instance", 0, 0, NOTE, text)
        if len(self.differences) == 1 and self.found > 1:
            (bits,) = self.differences
            why = "bits that are no address, such as a memory-encryption key, or a slot that is shifted"
            text = f"all frames differ by the same bits, {bits:#x}: {why}, rather than pages that moved"
            yield Finding("live: one difference", 0, 0, NOTE, text)
        if self.examples:
            facts = self.host.facts
            known = "; ".join(
                f"{name} {facts[name]}" for name in SIGNS if facts.get(name) not in (None, "", {})
            )
            encoding = f"{self.host.tree.encoding}, {self.host.tree.levels} levels"
            text = f"for a report, with the lines above: {encoding}{'; ' * bool(known)}{known}"
            yield Finding("live: where", 0, 0, NOTE, text)
