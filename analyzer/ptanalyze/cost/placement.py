"""Where page tables and data are, seen from the threads: names of the papers' figures, or shares."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..core.errors import UsageError

LOCAL, REMOTE, CONTENDED = "local", "remote", "contended"
DATA = r"(?:-(?P<data>[LR])D(?P<loaded>I?))?"
TWO_TABLES = re.compile(r"(?P<gpt>[LR])(?P<ept>[LR])(?P<far>I?)(?:\+?(?P<mended>[EGM]))?" + DATA)
ONE_TABLE = re.compile(r"(?P<gpt>[LR])P?(?P<far>I?)(?:\+?(?P<before>M))?" + DATA + r"(?:\+?(?P<mended>M))?")
SHARE = re.compile(r"(?P<tables>[LR]{1,2})(?P<far>I?):(?P<share>\d+(?:\.\d+)?)(?P<percent>%?)")
DATA_SHARE = re.compile(r"(?:RD|D)(?P<far>I?):(?P<share>\d+(?:\.\d+)?)(?P<percent>%?)")
ORDER = ("LL", "LR", "LRI", "RL", "RLI", "RR", "RRI", "RRIE", "RRIG", "RRIM")
ORDER_NATIVE = ("LP", "RP", "RPI", "RPIM")
ALL = 1e-3  # shares are written with a few digits
EXPECTED = "a name like LL, RRI, RRIE (gPT, ePT) or LP, RPI, RP-RD (native), or shares like LL:0.1,RR:0.9"


@dataclass(frozen=True)
class Placement:
    """Locations of the gPT, the ePT and the data: local, remote, or contended (remote, with other load on
    that node), and for which share of the walks (of the data accesses). `ept` is None for a native run;
    `repaired`: some table was remote and no longer is."""

    name: str
    gpt: str
    ept: str | None
    data: str = LOCAL
    gpt_share: float = 1.0
    ept_share: float = 1.0
    data_share: float = 1.0
    repaired: bool = False

    @property
    def all_local(self) -> bool:
        return self.tables_local and self.data == LOCAL

    @property
    def tables_local(self) -> bool:
        return self.gpt == LOCAL and self.ept in (LOCAL, None)

    @property
    def whole(self) -> bool:
        """Whether each table is in one place for all walks."""
        return all(share == 1 for state, share in self.tables() if state != LOCAL)

    @property
    def state(self) -> str:
        """State of its remote tables: REMOTE or CONTENDED; LOCAL where none is remote."""
        return next((state for state in (self.gpt, self.ept) if state and state != LOCAL), LOCAL)

    def tables(self) -> Iterator[tuple[str, float]]:
        """(state, share of the walks) of each table."""
        yield self.gpt, self.gpt_share
        if self.ept is not None:
            yield self.ept, self.ept_share

    def stretches(self, far: float, loaded: float) -> tuple[float, float]:
        """(mean stretch of the gPT, of the ePT) for k of an idle and of a contended remote node."""
        known = {LOCAL: 1.0, None: 1.0, REMOTE: far, CONTENDED: loaded}
        return (
            1 + self.gpt_share * (known[self.gpt] - 1),
            1 + self.ept_share * (known[self.ept] - 1),
        )


def placement(name: str) -> Placement:
    """Placement by its name in the papers' figures, or by shares; UsageError for any other name.

    vMitosis, figures 1 and 3: gPT then ePT, L or R, I = interference on the remote node, then the repaired
    table: E (ePT), G (gPT) or M (both), with or without a +. Mitosis, figure 6: LP, RP, RPI, RPI+M, with
    or without -LD, -RD, -RDI for the data. Shares, as `classify` prints them: LL:0.06,LR:0.19,RL:0.19,RR:0.56
    or 6% ..., natively L:0.25,R:0.75; RRI:1 under load; D:0.75 (DI:0.75) is the share of remote data.
    """
    if ":" in name:
        return _shares(name)
    if parts := TWO_TABLES.fullmatch(name):
        far = CONTENDED if parts["far"] else REMOTE
        gpt = LOCAL if parts["gpt"] == "L" or parts["mended"] in ("G", "M") else far
        ept = LOCAL if parts["ept"] == "L" or parts["mended"] in ("E", "M") else far
        return Placement(name, gpt, ept, _data(parts), repaired=bool(parts["mended"]))
    if parts := ONE_TABLE.fullmatch(name):
        far = CONTENDED if parts["far"] else REMOTE
        mended = parts["mended"] or parts["before"]
        gpt = LOCAL if parts["gpt"] == "L" or mended else far
        return Placement(name, gpt, None, _data(parts), repaired=bool(mended))
    raise UsageError(f"placement {name!r}: expected {EXPECTED}")


def _data(parts: re.Match[str]) -> str:
    if parts["data"] != "R":
        return LOCAL
    return CONTENDED if parts["loaded"] else REMOTE


def _shares(name: str) -> Placement:
    """Placement of a list of classes with their shares; UsageError unless they add up to 1."""
    gpt = ept = total = data = 0.0
    widths: set[int] = set()
    loads: dict[str, set[str]] = {"tables": set(), "data": set()}
    for part in name.split(","):
        part = part.strip()
        if parts := DATA_SHARE.fullmatch(part):
            data += _share(parts, name)
            loads["data"].add(parts["far"])
        elif parts := SHARE.fullmatch(part):
            share, tables = _share(parts, name), parts["tables"]
            total += share
            gpt += share * (tables[0] == "R")
            ept += share * (tables[-1] == "R")
            widths.add(len(tables))
            if "R" in tables:
                loads["tables"].add(parts["far"])
        else:
            raise UsageError(f"placement {name}: {part!r}: expected {EXPECTED}")
    if len(widths) != 1 or any(len(load) > 1 for load in loads.values()):
        raise UsageError(f"placement {name}: name either one table (L, R) or two (LL .. RR), all I or none")
    if abs(total - 1) > ALL * 10 or data > 1 + ALL:
        raise UsageError(f"placement {name}: shares of walks add up to {total:g}, of data to {data:g}: not 1")
    native, far = widths == {1}, CONTENDED if "I" in loads["tables"] else REMOTE
    return Placement(
        name,
        far if gpt > ALL else LOCAL,
        None if native else far if ept > ALL else LOCAL,
        LOCAL if data <= ALL else CONTENDED if "I" in loads["data"] else REMOTE,
        min(gpt / total, 1.0) if gpt > ALL else 1.0,
        min(ept / total, 1.0) if ept > ALL and not native else 1.0,
        min(data, 1.0) if data > ALL else 1.0,
    )


def _share(parts: re.Match[str], name: str) -> float:
    share = float(parts["share"]) / (100 if parts["percent"] else 1)
    if share > 1 + ALL:
        raise UsageError(f"placement {name}: {parts[0]}: expected a share from 0 to 1, or with a % sign")
    return share
