"""What pictures share: the parts of a move in their order, and the steps of axes."""

PARTS = ("stop", "dump", "transfer", "restore", "commit", "resume")


def nice_step(span, ticks):
    """1, 2 or 5 times a power of ten, so that `span` has at most `ticks` steps."""
    step = 10.0 ** -6
    while True:
        for factor in (1, 2, 5):
            if span <= step * factor * ticks:
                return step * factor
        step *= 10


def number(value):
    return f"{value:.6f}".rstrip("0").rstrip(".")
