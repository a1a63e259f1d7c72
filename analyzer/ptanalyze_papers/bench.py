"""Where modelled workloads are made and replayed: a temporary directory that holds each capture once."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import ptanalyze as pt
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters

# The designs that the Hydra paper compares, as policies; Linux is the baseline.

Design: TypeAlias = tuple[str, dict[str, Any]]  # a policy's name, its parameters

LINUX: Design = ("linux", {})
MITOSIS: Design = ("mitosis", {})
HYDRA: Design = ("hydra", {})
UNFILTERED: Design = ("hydra", {"tlbflush": "off"})

DESIGNS = {"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA, "unfiltered": UNFILTERED}


Size = TypeVar("Size", int, str)


class Bench:
    """quick: small captures, for tests and a first look; `directory` holds them until clear()."""

    def __init__(self, directory: str | Path, quick: bool = False) -> None:
        self.directory, self.quick = Path(directory), quick
        self._captures: dict[tuple[Parameters, bool], pt.Capture] = {}

    def size(self, full: Size, quick: Size) -> Size:
        return quick if self.quick else full

    def capture(self, trace: bool = True, **parameters: Any) -> pt.Capture:
        """Capture of synth.Parameters, made when first asked for."""
        asked = Parameters(**parameters), trace
        if asked not in self._captures:
            out = self.directory / f"{len(self._captures)}"
            synthesize(asked[0], out, trace=trace)
            self._captures[asked] = pt.open_capture(out)
        return self._captures[asked]

    def replay(
        self,
        capture: pt.Capture,
        policies: Sequence[str | Design],
        machine: str | pt.Machine = "vmitosis-cascade-lake",
        /,
        **how: Any,
    ) -> dict[str, pt.Result]:
        """{policy: Result} of whatif on a Capture; policies  names, or (name, {parameter: value}).

        machine  a Machine, or the name of one, which then gets as many nodes as the capture has
        how      keyword arguments of Setup.of
        A policy that is asked for more than once is "name key=value".
        """
        asked: list[Design] = [(one, {}) if isinstance(one, str) else one for one in policies]
        if isinstance(machine, str):
            machine = pt.load_machine(machine).resized(len(capture.snapshot.topology))
        trace = capture.trace if capture.has_trace else None
        results = pt.analysis.replay_snapshot(
            capture.snapshot, trace, asked, pt.Setup.of(**how, machine=machine)
        )
        names = [result.policy for result in results]
        return {
            result.policy if names.count(result.policy) == 1 else labelled(result, asked): result
            for result in results
        }

    def clear(self) -> None:
        """Captures of one paper are not those of the next: their room is freed."""
        self._captures.clear()
        shutil.rmtree(self.directory)
        self.directory.mkdir()


def labelled(result: pt.Result, asked: Sequence[Design]) -> str:
    """ "name key=value" of one of several results of a policy: the parameters that were asked for."""
    wanted = {key for name, params in asked if name == result.policy for key in params}
    said = [f"{key}={value}" for key, value in result.params.items() if key in wanted]
    return " ".join([result.policy, *said])


@contextmanager
def bench(quick: bool = False) -> Iterator[Bench]:
    """A Bench in a temporary directory that is gone afterwards; if killed, when the next begins."""
    with pt.safe_files.temporary_directory() as place:
        captures = place / "captures"
        captures.mkdir()
        yield Bench(captures, quick)
