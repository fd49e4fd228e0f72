"""Training by several processes, each of which owns some parts of the graph; `torchrun` starts them.

A process is a rank. Ranks take every step together. What they compute depends on the parts and not on the number of
ranks.
"""
