"""The records behind the questions: what a package beside the core takes beyond the tables of the API."""

from ..core.options import Keywords as Keywords
from ..cost.throughput import rated as rated
from ..kernels.replay import counters as counters
from ..world.mm_events import advice as advice
from .advise import Advised as Advised
from .advise import Question as Question
from .classify import locality as locality
from .setup import Policies as Policies
from .setup import ReplayCapture as ReplayCapture
from .setup import from_the_beginning as from_the_beginning
from .setup import open_replay_capture as open_replay_capture
from .setup import policies_of as policies_of
from .setup import setup_of as setup_of
from .setup import weighed_by as weighed_by
from .size import SizeCurve as SizeCurve
from .size import needed_curve as needed_curve
from .walk import explain as explain
from .whatif import replay_snapshot as replay_snapshot
