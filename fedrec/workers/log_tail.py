"""The end of a command's log: its error message, or its last lines."""

ERROR_PREFIX = "fedrec: "
"""The prefix of a command's message about its failure or its stop."""


def log_tail(text: str, most: int) -> tuple[str, ...]:
    """The lines from the last message of fedrec on, at most `most`; the last lines if there is no message."""
    lines = text.strip().splitlines()
    messages = [index for index, line in enumerate(lines) if line.startswith(ERROR_PREFIX)]
    return tuple(lines[messages[-1] :][:most] if messages else lines[-most:])
