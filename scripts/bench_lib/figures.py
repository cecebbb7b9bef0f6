"""Statistics of runs, and tables of them."""

import math
import random
import statistics
from typing import NamedTuple

RESAMPLES = 10_000

median = statistics.median


def plain(value):
    """With three digits that count, or more before the point; without an exponent: 0.0123, 1.96, 1,960."""
    places = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(places, 0)}f}"


def spread(values):
    return f"{plain(min(values))} – {plain(max(values))}"


def ratio(ours, theirs):
    """The median over the rounds of ours / theirs, both of the same round."""
    return median(mine / their for mine, their in zip(ours, theirs))


def difference_interval(ours, theirs):
    """Difference of the medians, and its 95 % interval by bootstrap."""
    generator = random.Random(1)

    def resampled(values):
        return median(generator.choices(values, k=len(values)))

    differences = sorted(resampled(ours) - resampled(theirs) for _ in range(RESAMPLES))
    return median(ours) - median(theirs), differences[int(RESAMPLES * 0.025)], differences[int(RESAMPLES * 0.975)]


class Headline(NamedTuple):
    """A line of the summary: a figure of ours beside its peer's of the same rounds."""

    what: str
    unit: str
    ours: list
    peer: str
    theirs: list
    more_is_better: bool = False

    def ratio(self):
        return ratio(self.ours, self.theirs)

    def is_better(self):
        return self.ratio() >= 1 if self.more_is_better else self.ratio() <= 1

    def row(self):
        return [f"{self.what}, {self.unit}", plain(median(self.ours)), self.peer, plain(median(self.theirs)),
                f"{plain(self.ratio())} ({'more' if self.more_is_better else 'less'} is better)"]


SUMMARY_HEAD = ("", "Ferry", "its peer", "peer's", "Ferry / peer")


def markdown(head, rows):
    lines = [" | ".join(head), " | ".join("---" if k == 0 else "---:" for k in range(len(head)))]
    return "\n".join(f"| {line} |" for line in lines + [" | ".join(row) for row in rows])
