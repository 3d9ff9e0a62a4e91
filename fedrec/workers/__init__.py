"""Processes that do one command after another, so that what is slow to start is started once.

Knows nothing of recommendation: a command is a list of words, its outcome an exit status.
"""
