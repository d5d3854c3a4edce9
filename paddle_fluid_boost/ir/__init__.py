"""A small SSA graph, its printer, verifier and pattern matcher."""
