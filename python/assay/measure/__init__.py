"""Measuring: engines run one after another into a run, and what their records lead to at the end."""
