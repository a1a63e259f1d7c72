"""What a campaign ran and what it found, as a table."""

import sys
from collections import Counter, defaultdict


class Findings:
    """By kind of input: inputs, calls, codes {exit code: calls}, slowest (seconds of CPU, call).

    wrong  {what: [count, kind, seed, call, detail of the first]}; peak: (bytes, call) of the largest child
    """

    def __init__(self):
        self.inputs, self.calls, self.codes = Counter(), Counter(), defaultdict(Counter)
        self.slowest, self.seconds = {}, Counter()
        self.wrong, self.peak = {}, (0, "")

    def add_input(self, kind, seed, done, peak):
        """done: [(call, Ended)] of an input; peak: bytes that its child has had at most."""
        self.inputs[kind] += 1
        for call, ended in done:
            self.calls[kind] += 1
            self.codes[kind][ended.code] += 1
            self.seconds[kind] += ended.seconds
            self.slowest[kind] = max(self.slowest.get(kind, (0.0, "")), (ended.seconds, call))
            if ended.wrong:
                self.add(ended.wrong, kind, seed, call, ended.detail)
        self.peak = max(self.peak, (peak, f"{kind} {seed}"))

    def add(self, wrong, kind, seed, call, detail=""):
        if wrong not in self.wrong:
            self.wrong[wrong] = [0, kind, seed, call, detail]
            print(self.line(wrong), file=sys.stderr, flush=True)
        self.wrong[wrong][0] += 1

    def line(self, wrong):
        count, kind, seed, call, detail = self.wrong[wrong]
        return f"{count or 1} x {wrong}; first {kind} {seed}: {call[:500]}: {detail}"

    def report(self, seconds):
        codes = sorted({code for codes in self.codes.values() for code in codes}, key=str)
        rows = [["", "inputs", "calls", *(f"exit {code}" for code in codes), "CPU s", "slowest s"]]
        for kind in sorted(self.inputs):
            ended = [self.codes[kind][code] for code in codes]
            rows.append(
                [kind, self.inputs[kind], self.calls[kind], *ended, self.seconds[kind], self.slowest[kind][0]]
            )
        totals = [sum(column) for column in zip(*(row[1:-1] for row in rows[1:]), strict=True)]
        rows.append(["all", *totals, max((slow for slow, _ in self.slowest.values()), default=0.0)])
        lines = ["".join(map(cell, row)).rstrip() for row in rows]
        for kind, (slow, call) in sorted(self.slowest.items()):
            lines.append(f"slowest {kind}: {slow:.1f} s: {call[:200]}")
        lines.append(f"{seconds:.0f} s; peak RSS {self.peak[0] >> 20} MiB: {self.peak[1]}")
        return "\n".join([*lines, *map(self.line, sorted(self.wrong))])


def cell(value):
    text = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
    return f"{text:>12}"
