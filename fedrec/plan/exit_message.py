"""The last line of a workflow that did not finish: the number of finished runs, and how to continue."""

import atexit
import shlex
import sys
from collections.abc import Callable, Sequence

from fedrec.config.methods import Methods
from fedrec.plan.run_list import ListedRun
from fedrec.plan.run_status import DONE, run_statuses


class ExitMessage:
    """Print a message when the process ends, after Snakemake's output, unless `cancel` is called."""

    def __init__(
        self, runs: Callable[[], Sequence[ListedRun]], methods: Methods, words: Sequence[str]
    ) -> None:
        self._runs, self._methods, self._words = runs, methods, words

    def register(self) -> None:
        """Print the message at the end of the process."""
        atexit.register(self.print)

    def cancel(self) -> None:
        """Print no message: everything is built."""
        atexit.unregister(self.print)

    def print(self) -> None:
        """Print the message now."""
        states = run_statuses(self._runs(), self._methods, needs_models=True)
        done = sum(state.state == DONE for state in states)
        print(
            f"fedrec: not everything is built. {done} of {len(states)} runs are finished. The same command "
            f"continues, unfinished runs from their checkpoints: {shlex.join(['snakemake', *self._words])}",
            file=sys.stderr,
            flush=True,
        )
