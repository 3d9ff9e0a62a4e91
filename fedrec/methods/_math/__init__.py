"""Mathematics that one or two methods need."""
