"""The placement policies. Importing this imports none of them: names come from their files on first use."""

from ..core.lazy import attach
from .table import BOUND as BOUND
from .table import POLICIES as POLICIES
from .table import names as names

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)
