"""Targets of the dumper."""

import pytest

from native.dumping import SPARSE_GIB, build, running


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return build(tmp_path_factory)


@pytest.fixture(scope="module")
def big(programs):
    with running(programs / "dump_target", SPARSE_GIB) as (process, _):
        yield process.pid
