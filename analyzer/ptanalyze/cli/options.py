"""Arguments and options that several subcommands share."""

import click

capture_argument = click.argument("capture", required=False, type=click.Path())

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def open_or_default(directory):
    """The named capture, or the newest one here, or the bundled sample; says on stderr which it took."""
    from ..capture import default_capture, open_capture

    if directory is not None:
        return open_capture(directory)
    capture, which = default_capture()
    click.echo(f"ptanalyze: {which}", err=True)
    return capture
