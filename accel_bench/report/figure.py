"""A plot as data for plotly, with its caption and its table for readers who do not see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from accel_bench.report import style
from accel_bench.report.markup import escape, json_text, plain_table, plot_text, tag
from accel_bench.report.points import thin

# Points of one plot: more cannot be told apart, and each costs the reader time.
MAX_POINTS = 800
_MAX_LISTED = 300


@dataclass(frozen=True)
class Spot:
    """A point of a plot: where it is, what it says, and its interval in y (None for none)."""

    x: float | str
    y: float | str
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points of one source that look alike.

    Attributes:
      source: the source's number.
      name: what the legend calls it.
      spots: its points, in the order in which a line goes through them.
      symbol: plotly's marker; empty for a line alone.
      dash: plotly's dash of the line through the points; empty for none.
      end: a label at the last point; empty for none.
      bar: pattern of horizontal bars in place of points; None for points.
      color: number of the colour; None for that of the source.
      listed: whether the table under the plot has these points.
      legend: whether the legend has this series.
      shared: sources that it is of, where they are several: it shows while one of them does.
    """

    source: int
    name: str
    spots: Sequence[Spot]
    symbol: str = ""
    dash: str = ""
    end: str = ""
    bar: str | None = None
    color: int | None = None
    listed: bool = True
    legend: bool = True
    shared: Sequence[int] = ()

    def trace(self, limit: int) -> dict[str, Any]:
        """The series for plotly; colours are filled in where the page is shown."""
        spots = thin(self.spots, limit)
        color = self.source if self.color is None else self.color
        trace: dict[str, Any] = {
            "type": "scatter" if self.bar is None else "bar",
            "name": plot_text(self.name, 60),
            "x": [plot_text(s.x) if isinstance(s.x, str) else s.x for s in spots],
            "y": [plot_text(s.y) if isinstance(s.y, str) else s.y for s in spots],
            "hovertext": [plot_text(spot.text) for spot in spots],
            "hoverinfo": "text",
            "showlegend": self.legend,
            "legendgroup": plot_text(self.name, 60),
            "meta": {"s": list(self.shared) or [self.source], "c": color % style.COLORS},
        }
        if self.bar is not None:
            return trace | {"orientation": "h", "marker": {"pattern": {"shape": self.bar}}}
        modes = [("lines", self.dash), ("markers", self.symbol), ("text", self.end)]
        trace |= {"mode": "+".join(mode for mode, wanted in modes if wanted), "cliponaxis": False}
        if self.dash:
            trace["line"] = {"dash": self.dash, "width": 1.6}
        if self.symbol:
            trace["marker"] = {"symbol": self.symbol, "size": 9, "line": {"width": 1.6}}
        if self.end:
            trace["text"] = [""] * (len(spots) - 1) + [plot_text(self.end)]
            trace["textposition"] = "middle right"
        if any(s.low is not None for s in spots):
            trace["error_y"] = _error_bars(spots)
        return trace


def _error_bars(spots: Sequence[Spot]) -> dict[str, Any]:
    above = [_distance(spot.high, spot.y) for spot in spots]
    below = [_distance(spot.y, spot.low) for spot in spots]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below,
            "thickness": 1, "width": 3}  # fmt: skip


def _distance(high: object, low: object) -> float:
    """How far an interval's end is from the point; 0 where there is no interval."""
    if isinstance(high, int | float) and isinstance(low, int | float):
        return high - low
    return 0


@dataclass(frozen=True)
class Figure:
    """A plot.

    Attributes:
      name: the element's id.
      title: its heading.
      caption: what to see in it, in words.
      x, y: plotly's axes, `title` with the unit in it.
      series: what is plotted.
      notes: what was left out.
      layout: more of plotly's layout.
    """

    name: str
    title: str
    caption: str
    x: dict[str, Any]
    y: dict[str, Any]
    series: Sequence[Series]
    notes: Sequence[str] = ()
    layout: dict[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """The figure with its data, caption and table."""
        total = sum(len(series.spots) for series in self.series)
        share = min(1.0, MAX_POINTS / max(total, 1))
        limits = [max(2, int(len(series.spots) * share)) for series in self.series]
        notes = list(self.notes)
        if share < 1:
            notes.append(f"Of {total} points about {MAX_POINTS} are drawn, evenly spread.")
        plain = {
            "data": [s.trace(n) for s, n in zip(self.series, limits, strict=True)],
            "layout": {"xaxis": self.x, "yaxis": self.y, **self.layout},
        }
        caption = escape(" ".join([self.caption, *notes]))
        return tag(
            "figure",
            tag("h3", escape(self.title))
            + tag("div", "", class_="plot", id=self.name, role="img",
                  aria_label=f"{self.title}. {self.caption}")
            + f'<script type="application/json" id="{self.name}-data">{json_text(plain)}</script>'
            + tag("figcaption", caption)
            + self._table(),
        )  # fmt: skip

    def _table(self) -> str:
        rows = [
            (series.name, *spot.text.split("\n", 1)[:1], " · ".join(spot.text.split("\n")[1:]))
            for series in self.series
            if series.listed
            for spot in series.spots
        ]
        more = f"; the first {_MAX_LISTED} of {len(rows)}" if len(rows) > _MAX_LISTED else ""
        table = plain_table(
            ("series", "point", "figures"), rows[:_MAX_LISTED], f"{self.title}{more}"
        )
        return tag("details", tag("summary", "The figures of this plot as a table") + table)


def axis(title: str, log: bool = False, **more: Any) -> dict[str, Any]:
    """plotly's axis with a title that names its unit."""
    kind = {"type": "log", "exponentformat": "SI"} if log else {}
    return {"title": {"text": title}, **kind, **more}


def categories(names: Sequence[str], title: str) -> dict[str, Any]:
    """An axis of names in this order, the first on top."""
    order = list(dict.fromkeys(plot_text(name) for name in names))
    return {"type": "category", "autorange": "reversed", "title": {"text": title},
            "categoryarray": order}  # fmt: skip
