"""Files of what was measured: latencies, counters, calibrations."""

from .latency import NodeLatency as NodeLatency
from .latency import apart as apart
from .latency import checked as checked
from .latency import of_firmware as of_firmware
from .latency import read_latency as read_latency
from .latency import with_latency as with_latency
from .latency import with_walks as with_walks
from .latency import write_latency as write_latency
from .machine import read_calibration as read_calibration
from .machine import write_calibration as write_calibration
from .machine import write_machine as write_machine
