"""Files of what was measured: latencies, counters, calibrations."""

from .latency import LatencyMatrix as LatencyMatrix
from .latency import read_latency as read_latency
from .latency import read_matrix as read_matrix
from .latency import with_latency as with_latency
from .latency import write_latency as write_latency
from .latency import write_matrix as write_matrix
from .machine import read_calibration as read_calibration
from .machine import write_calibration as write_calibration
from .machine import write_machine as write_machine
