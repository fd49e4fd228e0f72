"""Experiments: `python -m experiments NAME` makes a table or figure of the docs."""
