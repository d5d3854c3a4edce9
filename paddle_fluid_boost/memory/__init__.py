"""Memory planner, block pool and zero-copy bridges."""
