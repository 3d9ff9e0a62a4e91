"""Tests, and what their processes find in the environment.

Each process of theirs has one thread, also those that tests start: workers that share cores and wait
for each other's threads take many times as long. It is set here, before numpy and torch are loaded and read it.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
# Where a test asks for two threads, they wait without keeping a core busy.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Servers that tests start are asked for what they have, whatever else goes through a proxy here.
_direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
os.environ["no_proxy"] = f"{_direct},127.0.0.1" if _direct else "127.0.0.1"
