"""The last line of a workflow that did not end well: what is finished, and which command continues."""

import atexit
import shlex
import sys
from collections.abc import Callable, Sequence

from fedrec.config.methods import Methods
from fedrec.plan.run_list import ListedRun
from fedrec.plan.run_status import DONE, run_statuses


class LastWords:
    """Speaks when the process ends, after everything that Snakemake prints, unless all was well."""

    def __init__(
        self, runs: Callable[[], Sequence[ListedRun]], methods: Methods, words: Sequence[str]
    ) -> None:
        self._runs, self._methods, self._words = runs, methods, words

    def prepare(self) -> None:
        """Speak at the end of the process."""
        atexit.register(self.speak)

    def cancel(self) -> None:
        """Say nothing: everything is built."""
        atexit.unregister(self.speak)

    def speak(self) -> None:
        """Print the line."""
        states = run_statuses(self._runs(), self._methods, needs_models=True)
        done = sum(state.state == DONE for state in states)
        print(
            f"fedrec: not everything is built. {done} of {len(states)} runs are finished. The same command "
            f"continues, unfinished runs from their checkpoints: {shlex.join(['snakemake', *self._words])}",
            file=sys.stderr,
            flush=True,
        )
