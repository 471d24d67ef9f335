"""Claims of lens B (ICLR 2021 submission): sample complexity and the loss landscape."""
