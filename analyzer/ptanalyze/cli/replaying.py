"""What the commands that replay policies share: their options, and the capture and machine they name."""

from typing import Any, NamedTuple

import click

from ..errors import UsageError
from .options import complete_machines, complete_policies

DEFAULT_MACHINE = "vmitosis-cascade-lake"

OPTIONS = (
    click.option(
        "-m",
        "--machine",
        default=DEFAULT_MACHINE,
        show_default=True,
        help="Name or TOML file.",
        shell_complete=complete_machines,
    ),
    click.option(
        "--threads-to-nodes",
        "placement",
        default="auto",
        show_default=True,
        help="recorded, round-robin, block, or nodes as 0,0,1,1.",
    ),
    click.option("--costs", type=click.Path(), help="Cost file instead of the machine's own."),
    click.option(
        "--calibration",
        type=click.Path(),
        help="What `ptanalyze calibrate` wrote of a measured run: run times in its proportions.",
    ),
    click.option("--contended", is_flag=True, help="DRAM latencies under load of the interconnect."),
    click.option(
        "--threads",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Threads to compute with; results do not depend on it.",
    ),
    click.option(
        "--move-threads", default="", metavar="A:B@30%,...", help="Threads of node A go on on B; or @2.5s."
    ),
    click.option("--autonuma", is_flag=True, help="Data follow their walkers (Linux's NUMA balancing)."),
    click.option(
        "--autonuma-set",
        "balancing",
        multiple=True,
        metavar="KEY=VALUE",
        help="With it: delay_ms, scan_period_ms, scan_size_mb, rate_limit_mb_s, by (guest, host).",
    ),
)

policy_option = click.option(
    "-p",
    "--policy",
    "names",
    multiple=True,
    required=True,
    shell_complete=complete_policies,
    help="Policy to replay, or several that act on different things as A+B, with parameters of its own as "
    "A:KEY=VALUE; give -p again to compare.",
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Policy parameter, or POLICY.KEY=VALUE."
)
baseline_option = click.option(
    "--baseline", default="auto", show_default=True, help="Policy the others are compared with."
)
csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one row a result.")


def replay_options(command):
    """The options of `question`, in their order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


class Question(NamedTuple):
    """What to replay: `how` are the keyword arguments of whatif.whatif that the options stand for."""

    capture: Any
    snapshot: Any
    trace: Any
    machine: Any
    how: dict[str, Any]

    def whatif(self, policies, **more):
        """[Result] of whatif.whatif, with progress on a terminal."""
        from ..progress import progress_bar
        from ..whatif import whatif

        with progress_bar() as progress:
            return whatif(
                self.snapshot, self.trace, self.machine, policies, progress=progress, **more, **self.how
            )


def question(
    directory,
    machine,
    placement,
    costs,
    contended,
    threads,
    calibration=None,
    move_threads="",
    autonuma=False,
    balancing=(),
):
    """The Question of a capture (or the default one) and the options' values."""
    from ..formats.calibration_file import read_calibration
    from ..machine import load_costs, load_machine
    from ..world.data_moves import Moves, moves_from
    from .options import open_or_default

    target = load_machine(machine)
    opened = open_or_default(directory)
    how = {
        "placement": placement,
        "costs": load_costs(target, costs),
        "calibration": read_calibration(calibration) if calibration else None,
        "contended": contended,
        "threads": threads,
        "cache_dir": opened.cache,
        "move_threads": move_threads,
        "moves": moves_from(dict(map(pair_of, balancing))) if autonuma or balancing else Moves(),
        "provenance": {"capture": str(opened.directory)},
    }
    trace = opened.trace if opened.has_trace else None
    return Question(opened, tables_of(opened), trace, target, how)


def tables_of(capture):
    """The capture's snapshot; for a bare trace one without tables, and a line that says so."""
    if capture.has_snapshot:
        return capture.snapshot
    from ..world.bare_trace import ASSUMED, bare_snapshot

    click.echo(f"ptanalyze: {capture.directory}: {ASSUMED}", err=True)
    return bare_snapshot(capture.trace)


def pair_of(setting):
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"--set {setting}: write KEY=VALUE or POLICY.KEY=VALUE")
    return key, value


def configured(names, settings):
    """[(name, {key: value})] from --policy, as NAME or NAME:KEY=VALUE:KEY=VALUE, and from --set."""
    from ..policies import share_settings

    names, own = zip(*((name, parts) for name, *parts in (one.split(":") for one in names)), strict=True)
    shared = share_settings(names, [pair_of(setting) for setting in settings])
    return [
        (name, {**values, **dict(map(pair_of, parts))})
        for name, values, parts in zip(names, shared, own, strict=True)
    ]
