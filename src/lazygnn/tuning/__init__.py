"""The search for good options: a space of values, trials on validation nodes, and a journal that survives a crash."""
