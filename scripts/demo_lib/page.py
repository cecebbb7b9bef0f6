"""demo.html: one page that needs nothing else, with its pictures as SVG in it."""

from html import escape

from .drawing import PARTS, nice_step, number
from .zoom import BIN_SECONDS, zooms

STYLE = """
:root { color-scheme: light dark;
  --back: #ffffff; --text: #1d2329; --soft: #5c6770; --line: #d9dee3; --panel: #f5f7f9;
  --perf: #2468b4; --stream: #b3541e; --mark: #d33f49; --good: #23803f; --bad: #c62828;
  --stop: #4e79a7; --dump: #f28e2b; --transfer: #76b7b2; --restore: #59a14f; --commit: #b07aa1; --resume: #e15759; }
@media (prefers-color-scheme: dark) { :root {
  --back: #14181c; --text: #e4e8ec; --soft: #9aa5af; --line: #343c44; --panel: #1d2329;
  --perf: #6aa9ec; --stream: #e8935c; --mark: #ff7b84; --good: #67c583; --bad: #ff7b7b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 74rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .4rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
p { margin: .3rem 0 .8rem; max-width: 56rem; } .soft { color: var(--soft); }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.4rem 0; padding: 0; list-style: none; }
.tiles li { flex: 1 1 7.2rem; background: var(--panel); border-radius: .6rem; padding: .7rem .9rem; }
.tiles b { display: block; font-size: 1.45rem; font-weight: 650; line-height: 1.25; } .tiles span { color: var(--soft);
  font-size: .85rem; } .good b { color: var(--good); } .bad b { color: var(--bad); }
figure { margin: 0; overflow-x: auto; } svg { display: block; width: 100%; min-width: 44rem; height: auto; }
svg text { fill: var(--soft); font-size: 13px; font-family: inherit; }
svg .title { fill: var(--text); font-weight: 600; }
svg .number { fill: var(--back); font-size: 12px; font-weight: 700; text-anchor: middle; }
svg .blackout { fill: var(--mark); font-weight: 700; text-anchor: middle; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .84rem;
  font-variant-numeric: tabular-nums; } th, td { padding: .38rem .42rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th:nth-child(-n+4), td:nth-child(-n+4) { text-align: left; }
pre { background: var(--panel); border-radius: .6rem; padding: .9rem; overflow-x: auto; font-size: .8rem;
  line-height: 1.4; }
"""

COLOURS = {"ib_send_bw": "--perf", "stream_check": "--stream"}
_WIDTH = 1060
_LEFT, _RIGHT = 64, 14


class _Panel:
    """Throughput of one program over time. `series`: (begin of the bin in s, Gbit/s), `bin` seconds wide."""

    height, top = 150, 46

    def __init__(self, y, title, name, series, bin_width, seconds):
        self.base = y + self.top + self.height
        self.y0, self.title, self.name, self.colour = y, title, name, COLOURS[name]
        self.series, self.bin, self.seconds = series, bin_width, seconds
        peak = max((value for _, value in series), default=0) or 1
        self.step = nice_step(peak, 4)
        self.limit = self.step * -(-peak // self.step)

    def x(self, time):
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(time / self.seconds, 0), 1)

    def y(self, value):
        return self.base - self.height * value / self.limit

    def svg(self, moves):
        out = [f'<text class="title" x="{_LEFT}" y="{self.y0 + 14}">{escape(self.title)}</text>',
               f'<text x="{_LEFT - 8}" y="{self.y0 + 14}" class="end">Gbit/s</text>']
        value = 0
        while value <= self.limit * 1.001:
            y = self.y(value)
            out.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                       f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{number(value)}</text>')
            value += self.step
        for move in moves:
            own = move["program"] == self.name
            spans = [(move["began"], move["ended"], 0.07)] + ([(*move["gap"], 0.45)] if own else [])
            for begin, end, opacity in spans:
                left, right = self.x(begin), self.x(end)
                out.append(f'<rect x="{left:.1f}" y="{self.base - self.height}" width="{max(right - left, 1.5):.1f}" '
                           f'height="{self.height}" fill="var(--mark)" opacity="{opacity}">'
                           f'<title>{escape(_describe(move))}</title></rect>')
        points = []
        for time, value in self.series:
            points.append(f"{self.x(time):.1f},{self.y(value):.1f} {self.x(time + self.bin):.1f},{self.y(value):.1f}")
        if points:
            line = " ".join(points)
            first, last = self.x(self.series[0][0]), self.x(self.series[-1][0] + self.bin)
            out.append(f'<polygon points="{first:.1f},{self.base} {line} {last:.1f},{self.base}" '
                       f'fill="var({self.colour})" opacity="0.18"/>'
                       f'<polyline points="{line}" fill="none" stroke="var({self.colour})" stroke-width="1.4" '
                       f'stroke-linejoin="round"/>')
        for move in moves:
            if move["program"] == self.name:
                middle = (self.x(move["gap"][0]) + self.x(move["gap"][1])) / 2
                y = self.base - self.height - 9
                out.append(f'<circle cx="{middle:.1f}" cy="{y}" r="9" fill="var(--mark)"><title>'
                           f'{escape(_describe(move))}</title></circle>'
                           f'<text class="number" x="{middle:.1f}" y="{y + 4}">{move["number"]}</text>')
        return "".join(out)


def _describe(move):
    return (f"move {move['number']}: {move['program']} {move['role']}, {move['from']} to {move['to']}, "
            f"blackout {move['blackout_ms']:.1f} ms")


def _time_axis(seconds, y):
    step = nice_step(seconds, 12)
    out, time = [], 0.0
    while time <= seconds:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * time / seconds
        out.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}"/>'
                   f'<text class="middle" x="{x:.1f}" y="{y + 20}">{number(time)}</text>')
        time += step
    out.append(f'<text class="end" x="{_WIDTH - _RIGHT}" y="{y + 38}">seconds since both programs ran</text>')
    return "".join(out)


def _throughput(result):
    panels, y = [], 4
    for name, (bin_seconds, series) in result["series"].items():
        panels.append(_Panel(y, f"{name}, in steps of {bin_seconds * 1e3:.0f} ms", name, series, bin_seconds,
                             result["seconds"]))
        y = panels[-1].base + 18
    height = panels[-1].base + 44
    body = "".join(panel.svg(result["moves"]) for panel in panels) + _time_axis(result["seconds"], panels[-1].base)
    return (f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Throughput of both programs over time, '
            f'with the moves marked">{body}</svg>')


def _length(move, part):
    """Of a bar. `resume` may have ended, by a fraction of a millisecond, before the source learnt of the commit."""
    return max(move[f"{part}_ms"], 0)


def _parts(result):
    moves = result["moves"]
    row, bar, left = 28, 16, 250
    longest = max([sum(_length(move, part) for part in PARTS) for move in moves] +
                  [move["blackout_ms"] for move in moves] + [1])
    step = nice_step(longest, 8)
    limit = step * -(-longest // step)

    def x(ms):
        return left + (_WIDTH - left - 40) * ms / limit

    base = 34 + row * len(moves)
    out, legend = [], left
    for part in PARTS:
        out.append(f'<rect x="{legend}" y="6" width="12" height="12" rx="2" fill="var(--{part})"/>'
                   f'<text x="{legend + 17}" y="17">{part}</text>')
        legend += 100
    out.append(f'<line x1="{legend + 6}" x2="{legend + 6}" y1="4" y2="20" stroke="var(--text)" stroke-width="2.5"/>'
               f'<text x="{legend + 17}" y="17">blackout</text>')
    ms = 0
    while ms <= limit * 1.001:
        out.append(f'<line class="grid" x1="{x(ms):.1f}" x2="{x(ms):.1f}" y1="30" y2="{base}"/>'
                   f'<text class="middle" x="{x(ms):.1f}" y="{base + 18}">{number(ms)}</text>')
        ms += step
    for index, move in enumerate(moves):
        top, begin = 34 + row * index + (row - bar) / 2, 0.0
        out.append(f'<text class="end" x="{left - 12}" y="{top + 13:.1f}">{move["number"]}  {escape(move["program"])} '
                   f'{escape(move["role"])} {move["from"]} → {move["to"]}</text>')
        for part in PARTS:
            length = _length(move, part)
            out.append(f'<rect x="{x(begin):.1f}" y="{top:.1f}" width="{x(begin + length) - x(begin):.2f}" '
                       f'height="{bar}" fill="var(--{part})"><title>{part}: {length:.2f} ms</title></rect>')
            begin += length
        out.append(f'<line x1="{x(move["blackout_ms"]):.1f}" x2="{x(move["blackout_ms"]):.1f}" y1="{top - 4:.1f}" '
                   f'y2="{top + bar + 4:.1f}" stroke="var(--text)" stroke-width="2.5">'
                   f'<title>blackout: {move["blackout_ms"]:.1f} ms</title></line>')
    out.append(f'<text class="end" x="{_WIDTH - 14}" y="{base + 36}">milliseconds</text>')
    return (f'<svg viewBox="0 0 {_WIDTH} {base + 44}" role="img" aria-label="Parts of each move">'
            f'{"".join(out)}</svg>')


_COLUMNS = (
    ("#", lambda m: str(m["number"])),
    ("program", lambda m: escape(m["program"])),
    ("who", lambda m: escape(m["role"])),
    ("way", lambda m: f"{m['from']} → {m['to']}"),
    ("blackout<br>ms", lambda m: f"<b>{m['blackout_ms']:.1f}</b>"),
    *((f"{part}<br>ms", lambda m, part=part: f"{m[part + '_ms']:.2f}") for part in PARTS),
    ("RDMA share<br>ms", lambda m: f"{m['rdma_share_ms']:.3f}"),
    ("unacked<br>PSNs", lambda m: str(m["unacked_psns"])),
    ("image<br>MB", lambda m: f"{m['image_bytes'] / 1e6:.1f}"),
    ("packets<br>sent again", lambda m: str(m["retransmitted"])),
)


def _table(moves):
    head = "".join(f"<th>{name}</th>" for name, _ in _COLUMNS)
    rows = "".join("<tr>" + "".join(f"<td>{cell(move)}</td>" for _, cell in _COLUMNS) + "</tr>" for move in moves)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _tile(value, label, good=None):
    kind = "" if good is None else ' class="good"' if good else ' class="bad"'
    return f"<li{kind}><b>{escape(str(value))}</b><span>{escape(label)}</span></li>"


def render(result):
    """The page. `result`: series {program: (seconds of a bin, [(s, Gbit/s)])}, seconds, moves (with what zoom() says of
    each), machine, date, problems,
    messages_{checked,lost,duplicated,corrupted}, perftest_exit, perftest_report, median_blackout_ms."""
    moves = result["moves"]
    counts = ("lost", "duplicated", "corrupted")
    tiles = [_tile(len(moves), "moves under load"),
             _tile(f"{result['median_blackout_ms']:.0f} ms", "median blackout"),
             _tile(f"{result['messages_checked']:,}", "messages checked"),
             *(_tile(result[f"messages_{kind}"], kind, result[f"messages_{kind}"] == 0) for kind in counts),
             _tile(result["perftest_exit"], "exit status of ib_send_bw", result["perftest_exit"] == 0)]
    problems = "".join(f'<p style="color: var(--bad)">{escape(problem)}</p>' for problem in result["problems"])
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ferry: RDMA programs that move while they send</title><style>{STYLE}</style></head><body>
<h1>Two RDMA programs, moved between three hosts while they send</h1>
<p>Debian's own <b>ib_send_bw</b> and <b>stream_check</b>, both unmodified, each a client and a server in a container of
its own, moved with <code>ferry move</code>.</p>
<p class="soft">{escape(result['date'])} · {escape(result['machine'])}</p>
{problems}<ul class="tiles">{"".join(tiles)}</ul>
<h2>Each blackout</h2>
<p class="soft">Gbit/s in each {BIN_SECONDS * 1e3:.0f} ms, over the milliseconds since the blackout began. Red: the
blackout, in which the side that stays sees nothing of the other; below it the steps of the move.
Dips outside of the red are the processes of all hosts taking turns on this machine's processors, as they do without
moves.</p>
<figure>{zooms(moves, COLOURS)}</figure>
<h2>The whole run</h2>
<p class="soft">Red: blackouts of this program, each with its move's number; pale: from the command to its end, also of
the other one's moves. ib_send_bw: bytes that arrive at its server's network interface. stream_check: payload that its
client saw complete. The steps are as long as the noise between moves needs.</p>
<figure>{_throughput(result)}</figure>
<h2>Where the time goes</h2>
<p class="soft">The parts of each move, one after another; the bar across is the blackout: the largest gap between two
completions at the side that did not move (stream_check), or between its last packet before and its first packet after
(ib_send_bw).</p>
<figure>{_parts(result)}</figure>
<h2>Moves</h2>
{_table(moves)}
<h2>What ib_send_bw reported</h2>
<pre>{escape(result['perftest_report'])}</pre>
</body></html>
"""
