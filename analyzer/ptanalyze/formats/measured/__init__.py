"""Files of what was measured: machines, latencies, counters, calibrations."""
