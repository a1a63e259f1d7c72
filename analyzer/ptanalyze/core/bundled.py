"""Data that travels with the package: machine and cost files, and the sample captures."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parents[1]
DEFAULT_MACHINE = "vmitosis-cascade-lake"
DEFAULT_SAMPLE = "lookup"  # placement matters when it is warm: dumps/samples/README.md


def bundled(kind: str) -> Path:
    """Directory of `kind` ("models" or "samples"): inside an installed package, else in the checkout."""
    installed = PACKAGE / "data" / kind
    if installed.is_dir():
        return installed
    return CHECKOUT / {"models": "models", "samples": "dumps/samples"}[kind]
