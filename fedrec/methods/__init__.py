"""One file per method, readable beside its paper."""
