"""Fusions and clean-ups on the graph, one a file, in one ordered list."""
