"""Run time by page-table placement, from counters alone: the law, its calibration, what it says, how well."""
