"""What stream_check's --series tells of a move: the throughput around it, and the time without any message."""

import itertools
import re

from demo_lib.failure import Failure


def points(text):
    """(wall-clock seconds, bytes in the 10 ms from then on) of the lines that are series; text may have others."""
    found = re.findall(r"^(\d+\.\d\d) \d+ (\d+)$", text, re.MULTILINE)
    return [(float(moment), int(count)) for moment, count in found]


def rate(series, first, last):
    """Bytes a second."""
    return sum(count for moment, count in series if first <= moment < last) / (last - first)


def standstill(series, since):
    """The longest time without any byte: the last moment before it, and the first one after it."""
    moments = [moment for moment, count in series if moment >= since and count > 0]
    if len(moments) < 2:
        raise Failure("stream_check has stood still since")
    return max(itertools.pairwise(moments), key=lambda pair: pair[1] - pair[0])
