"""Results on disk: FILE.json holds everything (what `whatif --json` prints), FILE.parquet the flat rows."""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..core.decode import Undecodable, plain_json
from ..core.errors import CaptureError, UsageError
from ..cost.result import Result, frame
from .atomic import atomic_write
from .json_text import SCHEMA, plain

WHAT = "whatif"


def must_be_writable(output: str | PathLike[str]) -> None:
    """UsageError unless the name says which format is meant."""
    if not str(output).endswith((".parquet", ".json")):
        raise UsageError(
            f"-o {output}: results are written as Parquet or JSON; name it FILE.parquet or FILE.json"
        )


def write_results(output: str | PathLike[str], results: Sequence[Result]) -> None:
    """Write [Result] to FILE.json or FILE.parquet."""
    must_be_writable(output)
    with atomic_write(output) as file:
        if str(output).endswith(".parquet"):
            frame(results).to_parquet(file)
            return
        whole = {"schema": SCHEMA, "what": WHAT, "result": [result.to_json() for result in results]}
        file.write(json.dumps(plain(whole), indent=1, allow_nan=False).encode() + b"\n")


def read_rows(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """[{column: value}] of a results file, FILE.json or FILE.parquet; CaptureError where it is neither."""
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            import pandas

            flat: list[dict[str, Any]] = pandas.read_parquet(path).to_dict("records")
            return flat
        whole = plain_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except Undecodable as error:
        raise CaptureError(
            path, error.field, error.value, f"no results of `ptanalyze whatif`: {error.why}"
        ) from None
    except ValueError as error:
        raise CaptureError(
            path, "contents", f"{str(error)[:60]!r}", "no results of `ptanalyze whatif`"
        ) from None
    if not isinstance(whole, dict) or whole.get("what") != WHAT or not isinstance(whole.get("result"), list):
        raise CaptureError(path, "what", _shown(whole), "expected what `ptanalyze whatif --json` prints")
    if whole.get("schema") != SCHEMA:
        raise CaptureError(path, "schema", whole.get("schema"), f"this version reads schema {SCHEMA}")
    rows: list[dict[str, Any]] = whole["result"]
    if not all(isinstance(row, dict) and "policy" in row for row in rows):
        raise CaptureError(path, "result", "a row without a policy", "expected what `ptanalyze whatif` wrote")
    return rows


def _shown(whole: object) -> str:
    return repr(whole.get("what")) if isinstance(whole, dict) else type(whole).__name__
