# Processes that do one job's command after another, so that `import torch` is paid once for many runs.

from fedrec.workers.process import WORKER_COMMAND
from fedrec.workers.server import WorkerServer

WORKERS = []


def start_workers():
    """Let jobs hand their commands over: here, and on a cluster inside of every job, which has its own."""
    WORKERS.append(WorkerServer(WORKER_COMMAND))
    if workflow.local_exec:
        # Jobs of this machine start as cores are free. A limit of their rate, which nothing here reaches, would
        # have the scheduler look again after its span, for every job done so far, and end no sooner.
        workflow.scheduler.job_rate_limiter = None


def end_workers():
    """Let the workers end. They do so by themselves, too, as soon as this process is gone."""
    while WORKERS:
        WORKERS.pop().close()
