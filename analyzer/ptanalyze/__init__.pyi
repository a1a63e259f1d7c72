from .api import advise as advise
from .api import calibrate as calibrate
from .api import classify as classify
from .api import compare as compare
from .api import fragmentation as fragmentation
from .api import load as load
from .api import machines as machines
from .api import page_tables as page_tables
from .api import policies as policies
from .api import predict as predict
from .api import reads as reads
from .api import replay as replay
from .api import report as report
from .api import sweep as sweep
from .api import synth as synth
from .api import timeline as timeline
from .api import walk as walk
from .api import whatif as whatif

__version__: str
