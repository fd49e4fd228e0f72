"""The paper's tables and figures, each in a file of its own: `python -m experiments table1` and so on."""
