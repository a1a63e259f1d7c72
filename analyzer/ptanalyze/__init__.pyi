"""What type checkers see, and where each name of the API is defined: __init__.py reads it."""

from ptanalyze_law.run_time import calibrate as calibrate
from ptanalyze_law.run_time import predict as predict
from ptanalyze_report.explore import explore as explore
from ptanalyze_report.page import report as report
from ptanalyze_synth.capture import synth as synth

from .analysis.advise import advise as advise
from .analysis.catalogue import list_machines as list_machines
from .analysis.catalogue import list_policies as list_policies
from .analysis.classify import classify as classify
from .analysis.classify import fragmentation as fragmentation
from .analysis.compare import compare as compare
from .analysis.frames import page_tables as page_tables
from .analysis.setup import Setup as Setup
from .analysis.size import sizes as sizes
from .analysis.size import two_sizes as two_sizes
from .analysis.sweep import sweep as sweep
from .analysis.walk import walk as walk
from .analysis.walk import walk_map as walk_map
from .analysis.whatif import reads as reads
from .analysis.whatif import replay as replay
from .analysis.whatif import timeline as timeline
from .analysis.whatif import whatif as whatif
from .core.version import __version__ as __version__
from .formats.capture import load as load
from .show import plots as plots
