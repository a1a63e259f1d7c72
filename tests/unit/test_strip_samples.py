"""What is left out of the bundled captures changes no walk under any machine that comes with the package."""

from ptanalyze.formats.capture import open_capture
from stripped_traces import same_walks


def test_walks_of_the_one_bundled_sample_that_is_not_stripped_are_the_same_under_every_machine(tmp_path):
    capture = open_capture("sysbench-memory")
    same_walks(capture.trace, capture.snapshot, tmp_path / "trace.ptt")
