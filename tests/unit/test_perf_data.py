"""perf.data through perf itself: the same trace as from the text that it prints."""

import os
import shutil
import subprocess

import pytest

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.formats.foreign.perf_samples import (
    fields_of,
    import_perf_data,
    import_perf_script,
    print_samples,
)
from ptanalyze.formats.foreign.recognise import recognise
from ptanalyze.formats.trace import read_trace


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """A perf.data of page faults, which every kernel that perf may ask can count."""
    file = tmp_path_factory.mktemp("perf") / "perf.data"
    if not shutil.which("perf") and not os.environ.get("CI"):
        pytest.skip("needs perf")
    command = [
        "perf",
        "record",
        "-q",
        "-e",
        "page-faults",
        "-d",
        "--sample-cpu",
        "-c",
        "1",
        "-o",
        file,
        "true",
    ]
    if subprocess.run(command, capture_output=True).returncode and not os.environ.get("CI"):
        pytest.skip("perf may not count page faults here")
    return file


def test_perf_data_is_read_by_perf_as_its_text_is(faults, tmp_path):
    fields = ["-F", "tid,cpu,time,event,addr"]
    text = subprocess.run(["perf", "script", "-i", faults, *fields], capture_output=True, check=True).stdout
    (tmp_path / "text").write_bytes(text)
    count = import_perf_script(tmp_path / "text", tmp_path / "b.ptt")
    assert import_perf_data(faults, tmp_path / "a.ptt").accesses == count
    assert (tmp_path / "a.ptt").read_bytes() == (tmp_path / "b.ptt").read_bytes()
    assert recognise(faults) == "perf-data"


def test_periods_and_data_sources_are_asked_for(faults, tmp_path):
    command = ["perf", "record", "-q", "-e", "page-faults", "-d", "--sample-cpu", "-F", "1000"]
    assert subprocess.run([*command, "-o", tmp_path / "data", "ls"], capture_output=True).returncode == 0
    asked = fields_of(shutil.which("perf"), tmp_path / "data")
    assert asked == fields_of(shutil.which("perf"), faults) == "tid,cpu,time,period,event,addr,data_src"
    with open(tmp_path / "text", "wb+") as text:
        print_samples(tmp_path / "data", text)
        lines = text.read().splitlines()
    periods = [int(line.split(b":", 1)[1].split()[0]) for line in lines]
    assert lines and all(b"|TLB N/A|" in line for line in lines)
    assert import_perf_data(tmp_path / "data", tmp_path / "t.ptt").unit == max(periods)
    assert import_perf_data(faults, tmp_path / "f.ptt").unit == 1
    assert not read_trace(tmp_path / "f.ptt").facts["walks"]


def test_perf_data_that_is_cut_or_has_no_addresses_is_one_line(faults, tmp_path):
    whole = faults.read_bytes()
    begin, length = (int.from_bytes(whole[at : at + 8], "little") for at in (40, 48))
    for end in (8, 15, 40, 100, begin, begin + length // 2, begin + length - 1):
        (tmp_path / "cut").write_bytes(whole[:end])
        with pytest.raises(CaptureError, match=r"size = |cannot be read in full") as error:
            import_perf_data(tmp_path / "cut", tmp_path / "t.ptt")
        assert "\n" not in str(error.value) and not (tmp_path / "t.ptt").exists()
    plain = ["perf", "record", "-q", "-e", "cpu-clock", "-o", tmp_path / "plain", "true"]
    assert subprocess.run(plain, capture_output=True).returncode == 0
    with pytest.raises(CaptureError, match="without addr: record them with `perf record -d`"):
        import_perf_data(tmp_path / "plain", tmp_path / "t.ptt")


def test_without_perf_the_way_out_is_its_text(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="not installed; print it where it is"):
        import_perf_data(tmp_path / "perf.data", tmp_path / "t.ptt")
