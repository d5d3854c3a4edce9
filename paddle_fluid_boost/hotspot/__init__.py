"""Which calls are hot, when a compile pays, and the thread that does it."""
