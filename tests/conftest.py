"""How the suite runs: what is drawn, in what order files go to the processes, and what runs in both modes.

Tests marked `twin` prove what kernels compute: against a naive twin, by a property, by a closed form. They
run compiled and again as plain Python (NUMBA_DISABLE_JIT=1), where an index out of range is an error and not
a number; `make test` runs all others once, compiled. Plain Python has all examples of a property; compiled
code, which only must compute the same, has FEW.
"""

import gc
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from numba import config as numba

# Of a busy machine, time says nothing. In CI the same examples are drawn each time, new ones outside of it.
FEW = 5
EVERYWHERE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("outside", **EVERYWHERE)
settings.register_profile("ci", derandomize=True, **EVERYWHERE)
settings.register_profile("quick", max_examples=FEW, **EVERYWHERE)  # make check
settings.load_profile("ci" if os.environ.get("CI") else "outside")

os.environ["PTANALYZE_MEASURE"] = "no"  # page walks of this VM, for captures of it
os.environ.pop("COLUMNS", None)  # the tests' tables are as wide as nobody says, whatever terminal they run in
CACHE = tempfile.TemporaryDirectory(prefix="ptanalyze-")
os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache/matplotlib"))  # fonts are listed once
CODE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ptanalyze", "code")
os.environ["XDG_CACHE_HOME"] = CACHE.name  # nor do they have anybody's streams, but compiled code
with suppress(OSError):
    CODE.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(CACHE.name, "ptanalyze").mkdir(mode=0o700)
    Path(CACHE.name, "ptanalyze", "code").symlink_to(CODE)
sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema, of nbformat, makes grammars of it for 5 s
gc.set_threshold(100_000, 50, 50)  # Numba's compiler makes many objects and few cycles

# A shell's background ignores Ctrl-C, nohup a hang-up, and so would all that tests start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

TESTS = Path(__file__).parent
TOGETHER = {  # directories whose files go to one process
    "lab": "lab",  # each boots machines: at most one at a time
    "native": "native",  # they stop processes, and sample all CPUs
    "report": "report",  # they look at the same pages
}
# first those that wait
LONGEST = ("lab", "native", "report", "docs", "notebooks", "cli", "golden", "fuzz", "unit")
LONG = (  # of unit
    "synth", "policy_files", "policies", "code_cache", "tlb", "plots_values", "whatif", "data_migration",
    "validate", "house",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def elsewhere():
    """No capture is of this host: a sample's copy would be, on one like that which it was recorded on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptanalyze_host.machine_file.captured_host", lambda capture: None)
        yield


@pytest.fixture
def file(tmp_path):
    """Write text or bytes to a file and return its path."""

    def write(content, name="given.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also what make test leaves to make test-all")


def pytest_collection_modifyitems(config, items):
    """The longest begin. In make check every property has few examples, also one that asks for more."""
    if not config.getoption("--full") and (left := [item for item in items if of_test_all(item)]):
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    quick = config.getoption("--hypothesis-profile", None) == "quick"
    for function in {item.function: None for item in items if quick or compiled_twin(item)}:
        if asked := getattr(function, "_hypothesis_internal_use_settings", None):
            few = min(asked.max_examples, FEW)
            function._hypothesis_internal_use_settings = settings(asked, max_examples=few)
    for item in items:
        if directory(item) == "native":
            item.add_marker("native")
    items.sort(key=length)


def of_test_all(item):
    lab = item.get_closest_marker("lab")
    return item.get_closest_marker("full") or (lab and lab.kwargs.get("full"))


def length(item):
    """What is sorted by: the directory, and the files of it that would be waited for at the end."""
    subject = item.path.stem.removeprefix("test_")
    return LONGEST.index(directory(item)), LONG.index(subject) if subject in LONG else len(LONG)


def directory(item):
    return item.path.relative_to(TESTS).parts[0]


def compiled_twin(item):
    once = numba.DISABLE_JIT or item.get_closest_marker("compiled")
    return not once and item.get_closest_marker("twin") is not None


def pytest_xdist_make_scheduler(config, log):
    """A file goes to one process; some go there together."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0]
            return TOGETHER.get(path.split("/")[1], path)

    return ByFile(config, log)
