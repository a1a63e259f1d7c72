"""Sizes as people write them: 10M, 4G, 1.5T."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    ParamType = click.ParamType[int]
else:
    ParamType = click.ParamType


class Size(ParamType):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        from ..core.sizes import parse_size

        size = parse_size(str(value))
        if size is None:
            self.fail(f"{value!r} is no size; write it like 64M, 4G or 1.5T", param, ctx)
        return int(size)


SIZE = Size()
