"""The designs that the Hydra paper compares, as policies; Linux is the baseline."""

from typing import Any, TypeAlias

Design: TypeAlias = tuple[str, dict[str, Any]]  # a policy's name, its parameters

LINUX: Design = ("linux", {})
MITOSIS: Design = ("mitosis", {})
HYDRA: Design = ("hydra", {})
UNFILTERED: Design = ("hydra", {"tlbflush": "off"})
ALL_RANGES: Design = ("hydra", {"tlbflush": "all"})

DESIGNS = {"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA, "unfiltered": UNFILTERED, "all": ALL_RANGES}
