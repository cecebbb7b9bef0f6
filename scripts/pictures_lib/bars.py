"""Tables of a page as bars.

A table with a comment before it is drawn:

    <!-- picture NAME: columns 1 2; unit; title -->

A group of bars for each row, with a bar for each of the columns named (the first column, which has the rows' names, is
0). Numbers are taken from the cells as they are.
"""

import re
from html import escape

from demo_lib.failure import Failure

from . import svg

MARK = re.compile(r"<!-- picture ([\w-]+): columns ([\d ]+); ([^;]*); ([^;]*) -->")
NUMBER = re.compile(r"[-+−]?[\d,]*\.?\d+")
WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 900, 300, 90, 15, 9, 56
STYLE = """
svg { font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 13px;
  --back: #ffffff; --text: #1d2329; --soft: #5c6770; --line: #d9dee3;
  --c0: #2468b4; --c1: #b3541e; --c2: #59a14f; --c3: #b07aa1; }
@media (prefers-color-scheme: dark) { svg { --back: #14181c; --text: #e4e8ec; --soft: #9aa5af; --line: #343c44;
  --c0: #6aa9ec; --c1: #e8935c; --c2: #67c583; --c3: #c9a0bc; } }
text { fill: var(--soft); } .title { fill: var(--text); font-weight: 600; font-size: 15px; }
.end { text-anchor: end; } .middle { text-anchor: middle; } .grid { stroke: var(--line); }
"""


def draw_all(page):
    """{name: svg} of a page's tables."""
    pictures, lines = {}, page.read_text(encoding="utf-8").split("\n")
    for index, line in enumerate(lines):
        match = MARK.match(line)
        if match:
            name, columns, unit, title = match.groups()
            head, rows = _table(page, lines, index + 1)
            pictures[name] = _draw(head, rows, [int(each) for each in columns.split()], unit, title)
    if not pictures:
        raise Failure(f"{page} has no table with a mark of a picture")
    return pictures


def _table(page, lines, index):
    while index < len(lines) and not lines[index].startswith("|"):
        index += 1
    rows = []
    while index < len(lines) and lines[index].startswith("|"):
        rows.append([cell.strip() for cell in lines[index].strip().strip("|").split("|")])
        index += 1
    if len(rows) < 3:
        raise Failure(f"{page}: a mark of a picture, and no table behind it")
    return rows[0], rows[2:]


def _value(cell):
    match = NUMBER.match(cell)
    return float(match[0].replace(",", "").replace("−", "-")) if match else None


def _step(longest):
    step = 10.0 ** -3
    while True:
        for factor in (1, 2, 5):
            if longest <= step * factor * 6:
                return step * factor
        step *= 10


def _draw(head, rows, columns, unit, title):
    values = [[_value(row[column]) for column in columns] for row in rows]
    longest = max(value for row in values for value in row if value is not None)
    step = _step(longest)
    limit = step * -(-longest // step)
    height = TOP + sum(BAR * len(columns) + GAP for _ in rows) + 40
    base = height - 40

    def x(value):
        return LEFT + (WIDTH - LEFT - RIGHT) * value / limit

    out = [f'<rect width="{WIDTH}" height="{height}" fill="var(--back)"/>',
           f'<text class="title" x="14" y="22">{escape(title)}</text>']
    if len(columns) > 1:
        legend = LEFT
        for number, column in enumerate(columns):
            name = head[column]
            out.append(f'<rect x="{legend}" y="34" width="12" height="12" rx="2" fill="var(--c{number})"/>'
                       f'<text x="{legend + 17}" y="45">{escape(name)}</text>')
            legend += 34 + 8 * len(name)
    tick = 0.0
    while tick <= limit * 1.001:
        out.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{base}"/>'
                   f'<text class="middle" x="{x(tick):.1f}" y="{base + 17}">{tick:,.10g}</text>')
        tick += step
    out.append(f'<text class="end" x="{WIDTH - 14}" y="{base + 34}">{escape(unit)}</text>')
    top = TOP + GAP / 2
    for row, numbers in zip(rows, values):
        out.append(f'<text class="end" x="{LEFT - 10}" y="{top + BAR * len(columns) / 2 + 5:.1f}">'
                   f'{escape(row[0])}</text>')
        for number, (column, value) in enumerate(zip(columns, numbers)):
            if value is not None:
                out.append(f'<rect x="{LEFT}" y="{top:.1f}" width="{x(value) - LEFT:.1f}" height="{BAR - 2}" '
                           f'fill="var(--c{number})"/><text x="{x(value) + 6:.1f}" y="{top + 11:.1f}">'
                           f'{escape(row[column])}</text>')
            top += BAR
        top += GAP
    return svg.document("".join(out), WIDTH, height, escape(title), STYLE)
