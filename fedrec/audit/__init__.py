"""What a protocol, a run and an upload give away, and which differences are more than chance."""
