"""The page: one file that needs nothing else, with its pictures as SVG in it."""

from html import escape

from demo_lib.drawing import nice_step, number
from demo_lib.page import STYLE

from .figures import SUMMARY_HEAD, median, plain, spread

_WIDTH, _LEFT, _RIGHT, _ROW, _BAR = 1060, 330, 90, 26, 14
_PEERS = ("TCP", "raw UDP", "ucx_perftest", "memcpy")  # what the names of contestants without Ferry begin with
_MORE_STYLE = """
td:nth-child(-n+4), th:nth-child(-n+4) { text-align: right; }
td:first-child, th:first-child, .summary :is(td, th):nth-child(3) { text-align: left; }
.better { color: var(--good); } .worse { color: var(--bad); }
"""


def _bars(unit, values):
    """A bar to each median, with a line from the lowest to the highest figure across its end."""
    step = nice_step(max(max(runs) for runs in values.values()) or 1, 8)
    limit = step * -(-max(max(runs) for runs in values.values()) // step) or 1

    def x(value):
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / limit

    base = 8 + _ROW * len(values)
    out, tick = [], 0.0
    while tick <= limit * 1.001:
        out.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="4" y2="{base}"/>'
                   f'<text class="middle" x="{x(tick):.1f}" y="{base + 18}">{number(tick)}</text>')
        tick += step
    for index, (name, runs) in enumerate(values.items()):
        top = 8 + _ROW * index + (_ROW - _BAR) / 2
        middle, end = top + _BAR / 2, median(runs)
        colour = "--stream" if name.startswith(_PEERS) else "--perf"
        out.append(f'<text class="end" x="{_LEFT - 10}" y="{top + 12:.1f}">{escape(name)}</text>'
                   f'<rect x="{_LEFT}" y="{top:.1f}" width="{x(end) - _LEFT:.1f}" height="{_BAR}" rx="2" '
                   f'fill="var({colour})" opacity="0.75"><title>{escape(name)}: {plain(end)} {escape(unit)}, '
                   f'{spread(runs)}</title></rect>'
                   f'<line x1="{x(min(runs)):.1f}" x2="{x(max(runs)):.1f}" y1="{middle:.1f}" y2="{middle:.1f}" '
                   f'stroke="var(--text)" stroke-width="1.5"/>'
                   f'<text x="{x(max(runs)) + 6:.1f}" y="{top + 12:.1f}">{plain(end)}</text>')
    out.append(f'<text class="end" x="{_WIDTH - 14}" y="{base + 18}">{escape(unit)}</text>')
    return (f'<figure><svg viewBox="0 0 {_WIDTH} {base + 26}" role="img" aria-label="Medians with their spread">'
            f'{"".join(out)}</svg></figure>')


def _section(table):
    head = "".join(f"<th>{escape(name)}</th>" for name in table["head"])
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table["rows"])
    note = f'<p class="soft">{escape(table["note"])}</p>' if table["note"] else ""
    bars = _bars(*table["bars"]) if table["bars"] else ""
    return (f"<h2>{escape(table['title'])}</h2>{note}{bars}"
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>')


def _summary(headlines):
    """Each figure beside its peer of the same run."""
    if not headlines:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in SUMMARY_HEAD)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line.row()[:-1]) +
        f'<td class="{"better" if line.is_better() else "worse"}">{escape(line.row()[-1])}</td></tr>'
        for line in headlines)
    return (f'<h2>Summary</h2><div class="scroll"><table class="summary"><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>")


def render(machine, headlines, tables):
    """`headlines`, `tables`: what Contest.headline() and Contest.table() kept."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ferry beside its peers</title><style>{STYLE}{_MORE_STYLE}</style></head><body>
<h1>Ferry's RNIC beside its peers</h1>
<p>Contestants ran in turns, in an order of its own in each round, between two hosts of the lab, which share this
machine's processors. Bars: medians of the rounds; the line across a bar's end: from the lowest round to the highest.
Ratios are medians over the rounds, each to the peer of the same round.</p>
<p class="soft">{escape(machine)}</p>
{_summary(headlines)}
{"".join(_section(table) for table in tables)}
</body></html>
"""
