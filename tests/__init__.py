"""Tests. Each process of theirs has one thread, also those that tests start: workers that share cores and wait
for each other's threads take many times as long. It is set here, before numpy and torch are loaded and read it.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
