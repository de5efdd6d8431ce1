"""A text as a sequence of bytes, each one token: a file that the user names, or Python's own words.

The text that every Python brings is that of its help topics (`pydoc_data.topics`), about 700 kB of
English that differs a little from version to version: `facts.data.sha256` of a record tells.

The last tenth of a text is held out. A sequence is a window of `length` + 1 bytes, of which the
last `length` are predicted; windows lie side by side, each beginning with the last byte of the one
before.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from accel_bench.errors import RequestError

VOCAB_SIZE = 256
HELD_OUT = 10  # one part of so many
OWN_BYTES = 600_000  # of Python's own text, in every version at least


@dataclass(frozen=True)
class Windows:
    """Sequences of a text, (length + 1,) int32 each, cut out when they are asked for."""

    text: np.ndarray  # uint8
    length: int

    def __len__(self) -> int:
        return max(0, len(self.text) - 1) // self.length

    def __getitem__(self, index: int) -> np.ndarray:
        start = index * self.length
        return self.text[start : start + self.length + 1].astype(np.int32)

    def __repr__(self) -> str:  # grain shows sources in messages
        return f"Windows({len(self)} x {self.length + 1})"


def check(file: str, length: int) -> None:
    """Raises `RequestError` where there is no such text, or too little of it."""
    needed = HELD_OUT * (length + 1)
    if not file:
        if importlib.util.find_spec("pydoc_data") is None:
            raise RequestError("this Python came without its help topics: name a text in file")
        if needed > OWN_BYTES:
            raise RequestError(
                f"Python's own text has about {OWN_BYTES} bytes, too few for length={length}: at "
                f"least {needed}; name a longer one in file"
            )
        return
    path = Path(file)
    if not path.is_file():
        is_there = "is no file" if path.exists() else "does not exist"
        raise RequestError(f"training file={file!r} {is_there}: name a text")
    size = path.stat().st_size
    if size < needed:
        raise RequestError(
            f"training file={file!r} has {size} bytes, too few for length={length}: at least "
            f"{needed}, of which a tenth is held out"
        )
    try:
        path.open("rb").close()
    except OSError as error:
        raise RequestError(f"training file={file!r}: {error.strerror or error}") from error


def load(file: str, length: int) -> tuple[Windows, Windows]:
    """Windows to train on, and held-out ones.

    Raises:
      RequestError: the file cannot be read.
    """
    try:
        data = Path(file).read_bytes() if file else _python_topics()
    except OSError as error:
        raise RequestError(f"training file={file!r}: {error.strerror or error}") from error
    text = np.frombuffer(data, np.uint8)
    split = len(text) - len(text) // HELD_OUT
    return Windows(text[:split], length), Windows(text[split:], length)


def _python_topics() -> bytes:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()
