# What Snakemake says, before it is shown: a mistyped target is answered first, and a dry run is told in short.

import logging

from snakemake.io import IOFile
from snakemake.logging import logger
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent

# What Snakemake says of each file that its cache takes or gives, of which a run has five, and, where there is no
# cluster, of groups of jobs, which are for clusters.
UNSPOKEN = ("Moving output file", "Symlinking output file", "Group jobs: inactive")


class Listener(logging.Filter):
    """Hears every message of Snakemake, and decides whether it is shown.

    Its first message after the Snakefile is read is the first moment at which the targets are known, that on
    the graph of jobs the last before it asks how files were made, and the table of jobs the first at which the
    plan is known: Snakemake has no other hooks there.
    """

    def __init__(self):
        super().__init__()
        self.checked = self.told = self.compared = self.started = False

    def filter(self, record):
        if not self.checked and workflow.dag_settings is not None:
            self.checked = True
            try:
                check_asked(PROJECT, workflow.dag_settings.targets, patterns_of_rules())
                if workflow.is_main_process:
                    force_outdated()
                elif workflow.remote_exec:
                    leave_out_finished()
                    keep_to_job()
            except FedrecError as error:
                stop(error)
        if not self.compared and str(record.msg).startswith("Building DAG"):
            self.compared = True
            forget_replaced()
        if not self.started and does_job_of_cluster():
            self.started = True
            start_workers()
        if str(record.msg).startswith(UNSPOKEN):
            return False
        event = getattr(record, "event", None)
        if event in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR) and submits():
            return told_of_failure(record)
        return self.shortened(record, event) if wants_short_plan() else True

    def shortened(self, record, event):
        """Whether a message of a dry run is shown: jobs are counted, not listed, and counted once."""
        if event == LogEvent.RUN_INFO and not self.told:
            self.told = True
            asked = workflow.dag_settings.targets or ["all"]
            told = forecast(PROJECT, *runs_planned(), asked)
            if is_for_cluster():
                told += f"\n{submission_words(submissions(), workflow.nodes)}"
            record.msg = f"{record.msg.rstrip()}\n\n{told}\n`snakemake -n --quiet host` lists every job.\n"
            return True
        listed = str(record.msg).startswith(("Reasons:", "Output file"))
        of_jobs = (LogEvent.JOB_INFO, LogEvent.GROUP_INFO, LogEvent.RUN_INFO)
        return event not in of_jobs and not listed


def asked_runs():
    """The runs that the targets need."""
    return runs_asked(PROJECT, workflow.dag_settings.targets or ["all"])


def lines_of_asked():
    """The same, finished or not, as a list of runs has them: `fedrec status` reads it."""
    return [PROJECT.job(run).listed(PROJECT.results) for run in asked_runs()]


def force_outdated():
    """Have runs trained again in whose place others lie, finished: brought from elsewhere, of other code.

    Snakemake knows only how those were made that it made itself, and takes any other file as it is.
    """
    settings = workflow.dag_settings
    files = results(
        [f"{run.folder}/{SUMMARY}" for run in outdated(PROJECT, asked_runs())]
    )
    settings.forcerun = {*settings.forcerun, *files}


def submits():
    """Whether this is the process that hands jobs to a cluster."""
    return workflow.is_main_process and workflow.non_local_exec


def does_job_of_cluster():
    """Whether this process does the runs of a cluster's job, and is about to: there are no hooks in it."""
    return (
        workflow.remote_exec and workflow.local_exec and workflow.scheduler is not None
    )


def forget_replaced():
    """Have Snakemake forget how runs were made, or begun, in whose place others lie that are the plan's own.

    It would train them again, for other parameters than those it noted.
    """
    if not workflow.is_main_process:
        return
    noted = workflow.persistence
    for run in current(PROJECT, asked_runs()):
        files = [
            IOFile(path) for path in results([f"{run.folder}/{file}" for file in FILES])
        ]
        record = noted.metadata(files[0])
        of_this_file = record and record.endtime == Path(files[0]).stat().st_mtime
        if not of_this_file and not (
            record and PROJECT.job(run).is_noted(record.params or ())
        ):
            for file in files:
                noted.cleanup_metadata(file)


def wants_short_plan():
    """Whether this is a dry run that asks for no more than the profile does."""
    settings = workflow.output_settings
    usual = {Quietness.HOST, Quietness.REASON}
    return settings.dryrun and not settings.printshellcmds and settings.quiet == usual


def patterns_of_rules():
    """Every rule by name, with the pattern of its files where it makes one after another."""
    return {
        one.name: str(one.output[0]) if one.has_wildcards() else None
        for one in workflow.rules
    }


def runs_planned():
    """The runs that are to be trained, and those that come from the cache between checkouts."""
    planned = ([], [])
    for job in workflow.dag.needrun_jobs():
        if job.rule.name == "train":
            planned[is_cached(job)].append(job_of(job.wildcards).run)
    return planned


logger.addFilter(Listener())
