"""Writes worked-examples.md from the numbers of `ptanalyze validate`: `make examples` runs it."""

from pathlib import Path

from ptanalyze_papers.run import summary, validate

PAGE = Path(__file__).parents[1] / "worked-examples.md"
MOST = 14  # rows of a figure: of more, those that differ most
FIGURES = {  # paper: (name in commands, its figures)
    "vMitosis": ("vmitosis", ("Figure 1", "Figure 2", "Figure 6")),
    "Hydra": ("hydra", ("Figure 8", "Figure 10", "Figure 11", "Figure 12")),
    "PTEMagnet": ("ptemagnet", ("Figure 6",)),
    "Ports": ("ports", ("pr, kron27", "pr, kron30", "bc, kron27", "cc, kron27")),  # GAP, 16 nodes
}
HEAD = """# Worked examples with published answers

What `ptanalyze validate` computes, beside what the papers measured. `make examples` writes this page; it is
not edited by hand. *Replayed* rows follow from published counts, *modelled* rows from a synthetic workload
made after the paper's description, *law* rows from published counters, *traced small* rows from the program
itself, recorded at a small size, *fitted* rows were chosen to agree and are no evidence, and of *not
reproducible* rows the note says why. Of long tables the {most} rows that differ most are shown;
the difference is that of the numbers, for a ratio less than the error of its effect, which the command
prints.
*Ports* are public measurements of Mitosis and Hydra ported to Linux 7.0: kernels of GAP on an EPYC with 16
nodes; of other graphs ask for `--row 'bc, kron29,'` and the like.
{{doc}}`explanation/model` says what the model leaves out.
"""
TABLE = """
% not run: needs half a minute
```sh
{command}
```

Published and ours{left}:

| quantity | unit | published | ours | difference | kind | why |
|---|---|---|---|---|---|---|
{rows}

Why, and what it rests on:

{why}
"""


def page(rows):
    """The page for rows of ptanalyze_papers.row.flat."""
    parts = [HEAD.format(most=MOST)]
    for paper, (name, figures) in FIGURES.items():
        for figure in figures:
            mine = [row for row in rows if row["paper"] == paper and belongs(row, figure)]
            parts.append(f"\n## {paper}, {figure}\n")
            parts.append(
                section(name, figure, mine) if mine else "The package has no number for this figure.\n"
            )
    return "".join(parts)


def belongs(row, figure):
    return row["where"].split(",")[0] == figure or row["quantity"].startswith(f"{figure},")


def section(name, figure, rows):
    shown = rows if len(rows) <= MOST else sorted(rows, key=lambda row: -abs(row["error"] or 0))[:MOST]
    left = f", the {MOST} of {len(rows)} rows that differ most" if len(rows) > MOST else ""
    notes = list(dict.fromkeys(row["note"] for row in shown if row["note"]))
    table = "\n".join(line(row, notes) for row in shown)
    why = "\n".join(f"{k}. {note}" for k, note in enumerate(notes, 1))
    command = f"ptanalyze validate --paper {name} --row '{figure},'"
    return TABLE.format(command=command, left=left, rows=table, why=why or "1. as measured")


def line(row, notes):
    quantity = row["quantity"].replace("|", r"\|")
    published = f"{row['bound']} {row['published']:.3g}".strip() if row["published"] is not None else "-"
    ours = "-" if row["ours"] is None else f"{row['ours']:.3g}"
    if row["ours"] is not None and row["low"] != row["high"]:
        ours += f" ({row['low']:.3g} to {row['high']:.3g})"
    error = "-" if row["error"] is None else f"{100 * row['error']:+.0f} %"
    why = f"({notes.index(row['note']) + 1})" if row["note"] else ""
    return f"| {quantity} | {row['unit']} | {published} | {ours} | {error} | {row['kind']} | {why} |"


def measured():
    """Rows of the figures on the page, and of no others: some take a workload to be made."""
    for name, figures in FIGURES.values():
        for figure in figures:
            yield from rows_of(name, figure)


def rows_of(name, figure):
    return summary(validate((name,), f"{figure},"))["papers"][0]["rows"]


if __name__ == "__main__":
    PAGE.write_text(page(list(measured())), "utf-8")
