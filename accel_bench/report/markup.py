"""Text of records made harmless for each place in a page. Nothing else may put it there.

Records come from other people's machines: a name in one may hold markup, a script, characters that
turn text round, or half a character. All of it is shown as it is written.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from accel_bench.record import strict

# A reason may hold a compiler's whole output; a page is no place for more than this much of it.
CLIP = 1500


def visible(text: object, clip: int = CLIP) -> str:
    """Text without characters that cannot be seen: `\\x1b` is written as these four characters."""
    plain = str(text)
    if len(plain) > clip:
        plain = f"{plain[:clip]}... ({len(plain) - clip} more characters)"
    if plain.isprintable():
        return plain
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii")
        for c in plain
    )


def escape(text: object, clip: int = CLIP) -> str:
    """Text for HTML, between tags or in a quoted attribute."""
    return html.escape(visible(text, clip), quote=True)


def plot_text(text: object, clip: int = 300) -> str:
    """Text for plotly, which takes tags and entities in labels for markup."""
    return html.escape(visible(text, clip), quote=False).replace("\n", "<br>")


def json_text(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or opens another."""
    plain = json.dumps(strict(value), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element around HTML; attributes are escaped, `class_` is written `class`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def listed(items: Iterable[object], **attributes: object) -> str:
    """A list of texts; empty for none."""
    rows = "".join(f"<li>{escape(item)}</li>" for item in items)
    return tag("ul", rows, **attributes) if rows else ""


def scrolling(content: str, label: str) -> str:
    """A container that scrolls by itself, so that the page need not; by keyboard too."""
    return tag("div", content, class_="scroll", role="region", tabindex=0, aria_label=label)


def plain_table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str) -> str:
    """A table of texts that is not sorted; the first cell of each row names it."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in header)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    inner = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
    return scrolling(f"<table>{inner}<tbody>{body}</tbody></table>", caption)
