"""Statistics of runs, and tables of them."""

import random
import statistics

RESAMPLES = 10_000

median = statistics.median


def spread(values):
    return f"{min(values):.3g} – {max(values):.3g}"


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


def markdown(head, rows):
    lines = [" | ".join(head), " | ".join("---" if k == 0 else "---:" for k in range(len(head)))]
    return "\n".join(f"| {line} |" for line in lines + [" | ".join(row) for row in rows])
