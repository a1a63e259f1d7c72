"""`diff` says that a redacted capture has other frames than the one it was made from."""

from heated import one_node_capture


def test_a_redacted_capture_is_named_and_others_are_not(pt, tmp_path):
    capture = one_node_capture(tmp_path / "app", heat=False)
    assert pt("redact", capture.directory, "-o", tmp_path / "red").code == 0
    said = pt("diff", capture.directory, tmp_path / "red").out
    assert f"{tmp_path / 'red'} is redacted: frames are numbered anew" in said
    assert "redacted" not in pt("diff", capture.directory, capture.directory).out
