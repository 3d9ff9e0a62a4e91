"""Mistakes that people make, and the one message that each must be answered with.

`python -m tests.mistakes` prints what is answered; `test_mistakes.py` holds the answers to what they must say.
"""
