"""Costs of counted events, and run time by page-table placement: the law, its calibration and its errors."""
