"""Where `--config=FILE` leads: a study's Python file, or the config.json that a run wrote."""

from accel_bench.config_files import load


def get_config(path: str):
    return load(path)
