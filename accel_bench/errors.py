"""The exceptions that say in one line why there is no run, or no more of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class _OneLine(Exception):
    """An exception whose text is all that its reader needs."""

    def _render_traceback_(self) -> list[str]:
        """What IPython asks an exception for: in a notebook the line alone is shown."""
        return [f"{type(self).__name__}: {self}"]


class RequestError(_OneLine):
    """A request that cannot be carried out as it stands.

    Its text is one line that says what is wrong, what was expected and what to do. The command
    line prints it and exits with status 2; nothing has been written by then.
    """


class RunError(_OneLine):
    """A run that was right and cannot go on; its text is one line. Exit status 1."""


def unknown(kind: str, name: str, known: Iterable[str]) -> RequestError:
    """A `RequestError` for a name that is not in a table, naming the nearest one that is."""
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f" did you mean {near[0]!r}?" if near else ""
    return RequestError(f"unknown {kind} {name!r}:{hint} known are {', '.join(known)}")
