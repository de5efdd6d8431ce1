"""How sources and origins are told apart: by colour, and always by something else as well."""

from __future__ import annotations

# Okabe and Ito's colours, which people with colour-blindness tell apart; on white the two
# lightest are darkened, on black the darkest is lightened, until they stand out 3 to 1.
LIGHT = {
    "colors": ["#0072b2", "#d55e00", "#00845f", "#b4568c", "#a87400", "#2f8ac2", "#5b5b5b"],
    "ink": "#1b1b1b",
    "paper": "#ffffff",
    "grid": "#d9d9d9",
}
DARK = {
    "colors": ["#4aa3df", "#f08a4b", "#25b58c", "#d894b8", "#e69f00", "#8ecdf2", "#b5b5b5"],
    "ink": "#ececec",
    "paper": "#16181b",
    "grid": "#3a3f45",
}
COLORS = len(LIGHT["colors"])
# As many as have no divisor in common with the colours: pairs repeat after 56 sources.
_SHAPES = ("circle", "square", "diamond", "cross", "star", "hexagon", "pentagon", "hourglass")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PATTERNS = ("", "/", "x", ".", "-", "|", "+", "\\")

ORIGINS = {
    "measured": "measured",
    "estimate": "the compiler's estimate, not run",
    "bound": "a bound, not run",
    "": "no time",
}
# The same for legends, which have little room; captions and hover texts say the rest.
SHORT = {"measured": "measured", "estimate": "~ estimate", "bound": "bound", "": "no time"}


def symbol(source: int, origin: str, rate: bool = True) -> str:
    """plotly's marker: filled where measured, hollow where estimated, a triangle for a bound.

    Args:
      source: the source's number.
      origin: `measured`, `estimate` or `bound`.
      rate: whether a rate is shown (at most so high) and no time (at least so long).
    """
    if origin == "bound":
        return "triangle-down-open" if rate else "triangle-up-open"
    return _SHAPES[source % len(_SHAPES)] + ("" if origin == "measured" else "-open")


def css(sources: int) -> str:
    """Rules for each source's colour and for hiding what belongs to it."""
    rules = [
        f".k{n}{{--k:var(--c{n % COLORS})}}html.off{n} .s{n}{{display:none}}"
        for n in range(sources)
    ]
    dark = f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    # Paper is white, whatever the screen was.
    print_ = f"@media print{{:root{{{_variables(LIGHT)}}}}}"
    return f":root{{{_variables(LIGHT)}}}{dark}{print_}{''.join(rules)}"


def _variables(theme: dict) -> str:
    named = [f"--{name}:{theme[name]}" for name in ("ink", "paper", "grid")]
    return ";".join([*named, *(f"--c{n}:{color}" for n, color in enumerate(theme["colors"]))])
