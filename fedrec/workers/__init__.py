"""Worker processes that run one command after another, so that slow imports happen once.

The package does not depend on recommendation: a command is a list of words, its result an exit status.
"""
