"""The placement policies: their names, and what is made of them."""

from .contract import RESEARCH as RESEARCH
from .contract import Policy as Policy
from .contract import parameters as parameters
from .contract import speaks_to as speaks_to
from .registry import NOT_MAINLINE as NOT_MAINLINE
from .registry import Plan as Plan
from .registry import availability as availability
from .registry import find as find
from .registry import label as label
from .registry import members as members
from .registry import plan_for as plan_for
from .registry import policies as policies
from .registry import share_settings as share_settings
from .table import BOUND as BOUND
from .table import POLICIES as POLICIES
from .table import names as names
