"""Tables and figures from results. Trains nothing."""
