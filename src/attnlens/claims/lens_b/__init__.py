"""Claims of lens B: sample complexity and the loss landscape."""
