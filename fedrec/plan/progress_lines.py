"""Lines that a workflow prints while it trains: the number of finished runs, and the estimated time left."""

import sys
import threading
import time
from collections.abc import Callable, Sequence

from fedrec.config.methods import Methods
from fedrec.plan.run_list import ListedRun
from fedrec.plan.run_status import DONE, FAILED, estimate_time, run_statuses
from fedrec.plan.status_text import format_status

SECONDS_BETWEEN_LINES = 60.0


def start_progress_lines(
    runs: Callable[[], Sequence[ListedRun]], methods: Methods, seconds: float = SECONDS_BETWEEN_LINES
) -> threading.Thread:
    """Print a line every `seconds` seconds until no run is left, or this process ends.

    The thread calls `runs` after the first wait, so that a short workflow does not read its runs.
    """
    thread = threading.Thread(target=_print_lines, args=(runs, methods, seconds), daemon=True)
    thread.start()
    return thread


def _print_lines(runs: Callable[[], Sequence[ListedRun]], methods: Methods, seconds: float) -> None:
    since = time.time()
    listed: Sequence[ListedRun] | None = None
    while True:
        time.sleep(seconds)
        listed = runs() if listed is None else listed
        states = run_statuses(listed, methods, since, needs_models=True)
        if all(state.state in (DONE, FAILED) for state in states):
            return
        first, *_ = format_status(states, estimate_time(states)).splitlines()
        print(first, file=sys.stderr, flush=True)
