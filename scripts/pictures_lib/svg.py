"""An SVG file: text that a person can read, in lines that are not too long."""

import re
import textwrap

WIDTH = 110


def document(body, width, height, label, style):
    """`style` is for light and dark readers: the file follows who looks at it."""
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}">')
    return f"{wrapped(head)}\n<style>\n{style.strip()}\n</style>\n{wrapped(body)}\n</svg>\n"


def wrapped(text):
    """An element a line. White space in a tag may as well be the end of a line."""
    lines = []
    for line in re.sub(r">\s*<(?!/(?:text|title)>)", ">\n<", text).split("\n"):
        lines += textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
