"""What the server holds and what each client keeps between rounds."""
