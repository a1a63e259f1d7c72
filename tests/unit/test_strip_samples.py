"""What is left out of the bundled captures changes no walk under any machine that comes with the package."""

import pytest

from ptanalyze.formats.capture import bundled_samples, open_capture
from stripped_traces import same_walks


@pytest.mark.parametrize("sample", sorted(set(bundled_samples()) - {"lookup"}))  # which is stripped already
def test_walks_of_the_bundled_samples_are_the_same_under_every_machine(sample, tmp_path):
    capture = open_capture(sample)
    same_walks(capture.trace, capture.snapshot, tmp_path / "trace.ptt")
