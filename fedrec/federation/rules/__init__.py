"""The rules that every method keeps, checked when a program is first met: alike in all engines."""
