"""Scripts for the oracle: of a text file, or of facts that another kernel gave.

A text file has "%% NAME ORDERS FILTERS" before a script. ORDERS and FILTERS are lists such as 0,9, and the
script is run with each of them; NAME may hold {order} and {filter}.
"""

import itertools
import json
from pathlib import Path


def scenarios(file):
    """[{name, order, tlbflush_opt, lines}] of a .json of facts or of a text file."""
    return _of_facts(file) if Path(file).suffix == ".json" else list(_of_text(Path(file).read_text()))


def _of_facts(file):
    return [
        {key: s[key] for key in ("name", "order", "tlbflush_opt")} | {"lines": [_line(x) for x in s["steps"]]}
        for s in json.loads(Path(file).read_text())
    ]


def _line(step):
    return step["op"] if "op" in step else " ".join(["check", step["check"], *map(str, step.get("of", []))])


def _of_text(text):
    for part in text.split("%% ")[1:]:
        head, *lines = part.splitlines()
        name, orders, filters = head.split()
        for order, flush in itertools.product(orders.split(","), filters.split(",")):
            yield {
                "name": name.format(order=order, filter=flush),
                "order": int(order),
                "tlbflush_opt": int(flush),
                "lines": [line.strip() for line in lines if line.strip()],
            }


def script(wanted, mode):
    """What the guest reads."""
    heads = (f"%% {s['name']} {s['order']} {s['tlbflush_opt']} {mode}" for s in wanted)
    return "".join("\n".join([head, *s["lines"]]) + "\n" for head, s in zip(heads, wanted, strict=True))
