"""The time around each move's blackout, in bins that are far shorter than it."""

from html import escape

from .drawing import PARTS, nice_step, number

BIN_SECONDS = 0.01  # stream_check counts in such steps
_WIDTH, _COLUMNS, _GAP = 1060, 2, 24
_HEIGHT, _TOP, _LEFT, _BELOW = 110, 40, 46, 58


def zoom(pair, move):
    """What the picture of a move needs: its bins from before the blackout until after it, with times in seconds since
    the blackout began."""
    begin, end = move["gap"]
    margin = max(0.1, end - begin)
    first = round((begin - margin) / BIN_SECONDS) * BIN_SECONDS
    steps = [(step, at - begin) for step, at in move["steps"] if step in PARTS]
    ends = [at for _, at in steps[1:]] + [steps[-1][1] + max(move["resume_ms"], 0) / 1e3] if steps else []
    return {"from": first - begin, "to": end + margin - begin, "length": end - begin,
            "bins": [(first + time - begin, rate) for time, rate in pair.series(first, end + margin, BIN_SECONDS)],
            "steps": [(step, at, until) for (step, at), until in zip(steps, ends)]}


def quietest(pair, begin, end, length):
    """When the stretch of `length` seconds begins, between `begin` and `end`, in which the pair moved least: the first
    of equals."""
    step = BIN_SECONDS / 2
    rates = [rate for _, rate in pair.series(begin, end, step)]
    count = max(round(length / step), 1)
    sums = [sum(rates[k:k + count]) for k in range(len(rates) - count + 1)] or [0]
    return begin + step * sums.index(min(sums))


def _cell(x0, y0, width, move, colour):
    zoomed = move["zoom"]
    base, right = y0 + _TOP + _HEIGHT, x0 + width
    peak = max((rate for _, rate in zoomed["bins"]), default=0) or 1
    step = nice_step(peak, 3)
    limit = step * -(-peak // step)
    span = zoomed["to"] - zoomed["from"]

    def x(time):
        share = min(max((time - zoomed["from"]) / span, 0), 1)
        return x0 + _LEFT + (width - _LEFT) * share

    out = [f'<text class="title" x="{x0 + _LEFT}" y="{y0 + 13}">{move["number"]}  {escape(move["program"])}, '
           f'{escape(move["role"])} {escape(move["from"])} → {escape(move["to"])}</text>']
    for tick in range(int(limit / step + 0.5) + 1):
        y = base - _HEIGHT * tick * step / limit
        out.append(f'<line class="grid" x1="{x0 + _LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
                   f'<text class="end" x="{x0 + _LEFT - 6}" y="{y + 4:.1f}">{number(tick * step)}</text>')
    left, end = x(0), x(zoomed["length"])
    out.append(f'<rect x="{left:.1f}" y="{base - _HEIGHT}" width="{max(end - left, 1.5):.1f}" height="{_HEIGHT}" '
               f'fill="var(--mark)" opacity="0.16"/>')
    for time, rate in zoomed["bins"]:
        height = _HEIGHT * rate / limit
        out.append(f'<rect x="{x(time):.1f}" y="{base - height:.1f}" '
                   f'width="{max(x(time + BIN_SECONDS) - x(time) - 0.4, 0.3):.1f}" height="{height:.1f}" '
                   f'fill="var({colour})" opacity="0.8"/>')
    # The blackout's length, above the band.
    y = base - _HEIGHT - 5
    out.append(f'<line x1="{left:.1f}" x2="{end:.1f}" y1="{y}" y2="{y}" stroke="var(--mark)" stroke-width="3"/>'
               f'<text class="blackout" x="{(left + end) / 2:.1f}" y="{y - 5}">{move["blackout_ms"]:.0f} ms</text>')
    for step_name, at, until in zoomed["steps"]:
        out.append(f'<rect x="{x(at):.1f}" y="{base + 4}" width="{max(x(until) - x(at), 0.8):.1f}" height="9" '
                   f'fill="var(--{step_name})"><title>{step_name}: {(until - at) * 1e3:.1f} ms</title></rect>')
    step = nice_step(span, 8)
    tick = -(-zoomed["from"] // step) * step
    while tick <= zoomed["to"]:
        out.append(f'<line class="axis" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{base + 15}" y2="{base + 19}"/>'
                   f'<text class="middle" x="{x(tick):.1f}" y="{base + 32}">{number(round(tick * 1e3, 3))}</text>')
        tick += step
    return "".join(out)


def _legend():
    out, x = [], _LEFT
    for part in PARTS:
        out.append(f'<rect x="{x}" y="6" width="12" height="9" fill="var(--{part})"/>'
                   f'<text x="{x + 17}" y="15">{part}</text>')
        x += 90
    out.append(f'<rect x="{x}" y="3" width="12" height="14" fill="var(--mark)" opacity="0.3"/>'
               f'<text x="{x + 17}" y="15">blackout</text>')
    return "".join(out)


def zooms(moves, colours):
    """A small picture for each move. `colours`: of the programs."""
    width = (_WIDTH - _GAP * (_COLUMNS - 1)) / _COLUMNS
    cell = _TOP + _HEIGHT + _BELOW
    body = "".join(_cell((index % _COLUMNS) * (width + _GAP), 28 + index // _COLUMNS * cell, width, move,
                         colours[move["program"]])
                   for index, move in enumerate(moves))
    height = 28 + cell * -(-len(moves) // _COLUMNS)
    return (f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Throughput around the blackout of each move">'
            f"{_legend()}{body}</svg>")
