"""The small parts of the page: escaped text, tables, device colours, data for scripts."""

import html
import itertools
import json
from collections.abc import Sequence

from graphs.problem import Problem

NUM_COLOURS = 9
"""How many page.css has: --d0 is the grey of a CPU beside GPUs, the others tell devices apart."""


def text(value: object) -> str:
    """Escaped for HTML, in attributes too; names come from models and may hold anything."""
    return html.escape(str(value))


def section(name: str, title: str, *parts: str) -> str:
    """A part of the page with a heading."""
    body = "\n".join(part for part in parts if part)
    return f"<section id='{name}'><h2>{text(title)}</h2>\n{body}\n</section>"


def paragraph(sentence: str, style: str = "") -> str:
    """A sentence with a capital and a full stop, of a class of page.css; empty for none."""
    of_style = f" class='{style}'" if style else ""
    return f"<p{of_style}>{text(sentence[:1].upper() + sentence[1:])}.</p>" if sentence else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 1) -> str:
    """A table of cells that are HTML already; columns from `numbers_from` on are right-aligned."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if column >= numbers_from else ''}>{cell}</{tag}>"
            for column, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        "<div class='scroll' tabindex='0'><table><thead><tr>"
        f"{cells([text(name) for name in head], 'th')}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what belongs to them; the latter are HTML already."""
    return f"<dl>{''.join(f'<dt>{text(name)}</dt><dd>{value}</dd>' for name, value in rows)}</dl>"


def name(value: object) -> str:
    """An op's, type's or file's name."""
    return f"<code>{text(value)}</code>"


def colours(problem: Problem) -> list[int]:
    """[D]: the colour of each device; grey is the CPU's where there are GPUs too."""
    has_gpu = "GPU" in problem.device_types
    others = itertools.count()
    return [
        0 if kind == "CPU" and has_gpu else 1 + next(others) % (NUM_COLOURS - 1)
        for kind in problem.device_types
    ]


def swatch(colour: int, label: str) -> str:
    """A device's name beside its colour."""
    return f"<span class='device'><i class='d{colour}'></i>{text(label)}</span>"


def data(identity: str, value: object) -> str:
    """A value for the page's script; no text in it can end the element."""
    content = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        content = content.replace(character, code)
    return f"<script type='application/json' id='{identity}'>{content}</script>"
