"""A comparison as one HTML file that opens offline: tables, plots, and where numbers are from."""

from accel_bench.report.page import html_text

__all__ = ["html_text"]
