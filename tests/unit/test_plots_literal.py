"""Texts that plots show: printable, no formulas, and their tables' attrs cheap to pass on."""

import json

import pandas as pd

from ptanalyze.show.plots.style import literal_table

ATTRS = {"machine": {"name": "a$b", "latency": [[1.0, 2.0], [3.0, 4.0]]}, "notes": ["x\ny"], "n": 3}


def shown():
    table = pd.DataFrame({"policy": ["a$b", "c\x1bd"], "walks": [1, 2]})
    table.attrs = ATTRS
    return literal_table(table)


def test_texts_are_printable_and_no_formulas_wherever_they_stand():
    table = shown()
    assert list(table["policy"]) == [r"a\$b", r"c\x1bd"] and list(table["walks"]) == [1, 2]
    assert table.attrs["machine"]["name"] == r"a\$b" and "\n" not in table.attrs["notes"][0]
    assert json.loads(json.dumps(table.attrs))["machine"]["latency"] == ATTRS["machine"]["latency"]
    assert ATTRS["machine"]["name"] == "a$b", "the caller's own stay as they are"


def test_what_pandas_makes_of_a_table_shares_its_attrs():
    table = shown()
    part = table[table["walks"] > 1]
    assert part.attrs["machine"] is table.attrs["machine"] and part.attrs["notes"] is table.attrs["notes"]
