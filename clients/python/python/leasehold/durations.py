"""Durations as people write them: seconds, ``timedelta``, or text such as ``30s``."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Optional, Union

from . import _native
from .errors import invalid_argument

#: Seconds, a ``timedelta``, or text: a whole number and one of ``ms``, ``s``, ``m``, ``h``, ``d``.
Duration = Union[int, float, timedelta, str]


def milliseconds(field: str, duration: Duration) -> int:
    """The duration in whole milliseconds. Raises ``InvalidArgumentError`` that names the field."""
    if isinstance(duration, str):
        try:
            return _native.parse_duration(duration)
        except ValueError as error:
            raise invalid_argument(field, f"{duration!r}: {error}") from None
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        seconds = float(duration)
    else:
        raise invalid_argument(field, f"{duration!r} is not a duration; pass seconds, a timedelta, or text like '30s'")
    if not math.isfinite(seconds) or seconds < 0 or seconds > 1e12:
        raise invalid_argument(field, f"{duration!r} is not a duration; pass seconds from 0 on")
    return round(seconds * 1000)


def optional_milliseconds(field: str, duration: Optional[Duration]) -> Optional[int]:
    """Like ``milliseconds``, and none for none."""
    return None if duration is None else milliseconds(field, duration)


def seconds(field: str, duration: Optional[Duration]) -> Optional[float]:
    """The duration in seconds, and none for none."""
    return None if duration is None else milliseconds(field, duration) / 1000
