"""Files that other programs write: traces, perf samples, dumps of page tables."""
