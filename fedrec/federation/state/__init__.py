"""State of the server, and state that each client keeps between rounds."""
