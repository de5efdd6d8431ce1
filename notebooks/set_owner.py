"""Sets whose repository the notebooks fetch and the badges open, in every file that names it.

    python notebooks/set_owner.py OWNER/REPOSITORY

`pyproject.toml` (`[project.urls]`) says whose it is now; that, the notebooks, the README and docs/
are rewritten.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# GitHub's address itself, and its path in that of Colab.
_PREFIX = r"(?<=github\.com/)|(?<=colab\.research\.google\.com/github/)"


def current(root: Path = ROOT) -> str:
    """`OWNER/REPOSITORY` as `pyproject.toml` says."""
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]
    return urls["Repository"].removeprefix("https://github.com/")


def files(root: Path = ROOT) -> list[Path]:
    """Files that may name the repository."""
    places = ("pyproject.toml", "README.md", "docs/*.md", "notebooks/*.ipynb")
    return [path for place in places for path in sorted(root.glob(place))]


def set_owner(name: str, root: Path = ROOT) -> list[Path]:
    """Writes `OWNER/REPOSITORY` wherever the current one stands; returns what was changed."""
    if not re.fullmatch(r"[\w-]+/[\w.-]+", name):
        raise SystemExit(f"{name!r} is no OWNER/REPOSITORY, such as alice/accel-bench")
    pattern = re.compile(rf"(?:{_PREFIX}){re.escape(current(root))}(?![\w-])")
    changed = []
    for path in files(root):
        text = path.read_text()
        if pattern.search(text):
            path.write_text(pattern.sub(name, text))
            changed.append(path)
    return changed


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python {sys.argv[0]} OWNER/REPOSITORY, now {current()}")
    for path in set_owner(sys.argv[1]):
        print(path.relative_to(ROOT))
