"""A fact that a reader of an answer must know: one record, made where the fact is known.

What shows answers decides by code, weight and numbers; the texts are for people.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OK, NOTE, CAREFUL, PARTIAL, FAILED = "ok", "note", "careful", "partial", "failed"

# Codes that decide what is shown; others are where they are made.

ASSUMED = "assumed"  # the assumptions of a run time
AS_TRACED = "as-traced"
BY_HEAT = "pages-by-heat"
CACHED = "caches-hold-leaf-entries"
DATA_NODES = "data-by-node"  # walks by the node of the page, where threads are not known
EACH_ONCE = "pages-each-once"
ELSEWHERE = "other-number-of-nodes"
GONE = "tables-gone"
MADVISE = "madvise"  # what the program says about huge pages
NO_RATE = "footprint-unknown"  # accessed bits tell no reads from DRAM
PHASES = "phases"  # of the trace, and the one that is answered
SAMPLED = "sampled"
SHORT = "short-region"
SILENT = "silent-nodes"
TOGETHER = "processes-together"
UNTRACED = (EACH_ONCE, BY_HEAT)
UNSEEN = (GONE, SHORT, SAMPLED)  # what the capture cannot show
OF_CAPTURE = (*UNSEEN, *UNTRACED, ELSEWHERE)  # said once, not beside each policy


@dataclass(frozen=True)
class Finding:
    """
    code     what programs read
    text     a line for people, without a full stop
    weight   OK, NOTE, CAREFUL (stands beside any recommendation), PARTIAL (data are missing) or FAILED
    short    the same within a sentence, "" where it need not be said in short
    policy   whose it is, "" where it is of the capture or the run
    numbers  {name: number} of the text
    """

    code: str
    text: str
    weight: str = NOTE
    short: str = ""
    policy: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def line(self) -> str:
        """The text behind whose it is, and its weight where it stands beside recommendations."""
        whose = f"{self.policy}: " if self.policy else ""
        return f"{whose}careful: {self.text}" if self.weight == CAREFUL else f"{whose}{self.text}"

    @property
    def sentence(self) -> str:
        first, line = self.line[0], self.line
        return f"{line}." if self.policy else f"{first.upper()}{line[1:]}."


def found(findings: Iterable[Finding], *codes: str) -> Finding | None:
    """The first of these codes, None where there is none."""
    return next((one for one in findings if one.code in codes), None)


def plain(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """For JSON and the attrs of tables, each once."""
    return [asdict(one) for one in dict.fromkeys(findings)]
