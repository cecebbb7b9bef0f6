"""The demo's picture of the throughput, taken out of its page, so that other pages can show it."""

import re

from demo_lib.failure import Failure

from . import svg

PICTURE = re.compile(r'<svg viewBox="0 0 (\d+) ([\d.]+)" role="img" aria-label="(Throughput of both[^"]*)">(.*?)</svg>',
                     re.DOTALL)
STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def draw(page):
    text = page.read_text(encoding="utf-8")
    picture, style = PICTURE.search(text), STYLE.search(text)
    if picture is None or style is None:
        raise Failure(f"{page} has no picture: give a page that scripts/demo has written")
    width, height, label, body = picture.groups()
    back = f'<rect width="{width}" height="{height}" fill="var(--back)"/>'
    font = 'svg { font-family: system-ui, "DejaVu Sans", sans-serif; }\n'
    return svg.document(back + body, width, height, label, font + _rules(style[1]))


def _rules(style):
    """The rules that are about pictures."""
    rules = re.findall(r"(?:@media[^{]*\{\s*:root\s*\{[^}]*\}\s*\}|[^{}@]+\{[^}]*\})", style)
    kept = [rule.strip() for rule in rules
            if re.match(r"\s*(:root|@media|svg (text|\.)|\.(grid|axis|end|middle)\b)", rule)]
    return "\n".join(kept)
