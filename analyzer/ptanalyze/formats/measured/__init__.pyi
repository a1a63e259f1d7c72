"""Files of what was measured: latencies, counters, calibrations."""

from .latency import read_latency as read_latency
from .latency import with_latency as with_latency
from .latency import write_latency as write_latency
from .machine import read_calibration as read_calibration
from .machine import write_calibration as write_calibration
from .machine import write_machine as write_machine
