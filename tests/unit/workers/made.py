"""A worker of few words, quick to start: `python -m tests.unit.workers.made CONNECTION`."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from fedrec.workers.channel import Channel
from fedrec.workers.process import DEVICE_LOST, OUT_OF_MEMORY
from fedrec.workers.worker import work

ROOT = Path(__file__).resolve().parents[3]
COMMAND = (sys.executable, "-m", "tests.unit.workers.made")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
STOPPED = 143


def perform(words):
    """`say` what follows, tell which `process` this is, or `wait` to be stopped; go wrong in many a way."""
    match words:
        case ["say", *rest]:
            print(*rest)
            print("to stderr", file=sys.stderr)
        case ["process", *_]:
            print(os.getpid(), os.environ.get("MADE", ""), Path.cwd())
        case ["fail", *rest]:
            print("before\nfedrec:", *rest, file=sys.stderr)
            return 1
        case ["fill"]:
            return OUT_OF_MEMORY
        case ["lose"]:
            return DEVICE_LOST
        case ["crash"]:
            raise RuntimeError("a defect")
        case ["die"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["be killed once", mark]:
            return _killed_once(Path(mark))
        case ["leave"]:
            raise SystemExit(2)
        case ["wait", mark]:
            return _wait(Path(mark))
    return 0


def _wait(mark):
    """Until SIGTERM comes, which is noted in a file."""

    def stop(_number, _frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        mark.write_text("waits")
        while True:
            time.sleep(60)
    except KeyboardInterrupt:
        mark.write_text("stopped")
    return STOPPED


def _killed_once(mark):
    """Tell the number of the process and wait for whoever kills it; the second time succeed."""
    if mark.exists():
        print("goes on")
        return 0
    unfinished = mark.with_suffix(".new")
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(mark)
    time.sleep(60)
    return 1


if __name__ == "__main__":
    work(Channel(socket.socket(fileno=int(sys.argv[1]))), perform)
