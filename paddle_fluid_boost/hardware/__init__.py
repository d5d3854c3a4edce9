"""What machine this is and what suits it."""
