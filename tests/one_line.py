"""How a command fails: with one line and an exit code."""


def is_one_line(ran, code):
    """The command failed as a command should: this exit code, one line, nothing else."""
    assert ran.code == code, ran
    assert ran.err.startswith("ptanalyze: ") and ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    return True
