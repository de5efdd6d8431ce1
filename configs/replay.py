"""Repeats the run that wrote a config.json; `--config=DIR/config.json` goes through this file."""

from accel_bench.config import read_json


def get_config(path: str):
    return read_json(path)
