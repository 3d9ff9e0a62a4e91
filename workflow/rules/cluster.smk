# What a cluster is asked for, and which runs travel in one job. Here, on one machine, none of it counts.

from functools import cache

from fedrec.plan.demand import Demands
from fedrec.plan.run_matching import unfinished
from fedrec.plan.submissions import FailedJob, Submission, submission_words
from fedrec.workers.slurm_jobs import end_jobs, jobs_left_behind, why_refused

DEMANDS = Demands(PROJECT)
ONE_JOB = "job"
"""The one group of a process that hands all runs of its job on to another."""


def is_for_cluster():
    """Whether jobs go to a cluster, or would: a dry run knows it by the profile, which limits a job's time."""
    settings = workflow.resource_settings
    return workflow.non_local_exec or (
        workflow.dryrun and "runtime" in dict(settings.default_resources or {})
    )


def bundle_of(wildcards):
    """The group of runs that a run goes to the cluster with; none for a long one, and here."""
    if workflow.remote_exec:
        return together(ONE_JOB) if workflow.non_local_exec else None
    name = bundles().get(job_of(wildcards).run) if is_for_cluster() else None
    return together(name) if name else None


@cache
def bundles():
    """The name of each short run's job, worked out once all that is to be done is known."""
    trained, cached = runs_planned()
    return DEMANDS.bundles([*trained, *cached])


def together(name):
    """A group whose jobs are one job, however many there are: no run of it depends on another."""
    settings = workflow.group_settings
    settings.group_components = {**settings.group_components, name: sys.maxsize}
    return name


def minutes_of(wildcards, attempt):
    """Minutes that a run may take."""
    return DEMANDS.minutes(job_of(wildcards).run, attempt)


def memory_of(wildcards, attempt):
    """MB that a run may take."""
    return DEMANDS.memory(job_of(wildcards).run, attempt)


def gpus_here(wildcards):
    """GPUs of a run on this machine; runs of a cluster's job share those of the job."""
    return 0 if workflow.remote_exec or is_for_cluster() else DEMANDS.gpus


def gpus_of_job(wildcards):
    """GPUs of a cluster's job, as a word: Snakemake would add up numbers, as if no two runs shared one."""
    return f"gpu:{DEMANDS.gpus}" if DEMANDS.gpus and is_for_cluster() else ""


def prepare_for_cluster():
    """Before jobs go to a cluster: let its queue hold none of an earlier start, and local jobs not be retried.

    A Snakemake that was killed leaves jobs there, which do the same runs. Retries are for a cluster's
    accidents: what fails here fails again.
    """
    for one in workflow.rules:
        if one.name != "train":
            one.restart_times = 0
    left = jobs_left_behind(Path()) if workflow.executor_plugin.name == "slurm" else []
    if left:
        print(
            f"fedrec: ending jobs of an earlier start: {', '.join(left)}",
            file=sys.stderr,
        )
        end_jobs(left, Path())


def keep_to_job():
    """Inside of a cluster's job, use the cores that it has, and let no run that fails stop the others."""
    workflow.execution_settings.keep_going = True
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    if cores:
        workflow.register_resource("_cores", int(cores))


def leave_out_finished():
    """Of the runs of a cluster's job, do those that are not finished: it may be the second attempt at it."""
    asked = {
        job_of(one.wildcards_dict).run: one
        for one in workflow.dag_settings.target_jobs
        if one.rulename == "train"
    }
    left = unfinished(PROJECT, asked)
    if asked and not left:
        raise SystemExit(0)
    if asked:
        workflow.dag_settings.target_jobs = [asked[run] for run in left]


def submissions():
    """The jobs that a cluster would be given: training is all that goes there."""
    dag = workflow.dag
    trained = [job for job in dag.needrun_jobs() if job.rule.name == "train"]
    return [
        Submission(
            job.groupid if job.is_group() else job_of(job.wildcards).run.folder,
            len(job),
            dict(job.resources.items()),
        )
        for job in {dag.get_job_group(job) or job for job in trained}
    ]


def told_of_failure(record):
    """Turn Snakemake's message on a failed job of a cluster into ours; whether it is shown.

    Snakemake would list all of its runs, finished or not, with all their files, commands and logs.
    """
    if record.event == LogEvent.JOB_ERROR and record.rule_name != "train":
        return True
    if record.event == LogEvent.JOB_ERROR and record.indent:
        # A run of a job of which all was told.
        return False
    job = next(job for job in workflow.scheduler.running if is_meant(job, record))
    aux = record.aux if record.event == LogEvent.JOB_ERROR else vars(record)
    logs = record.log if record.event == LogEvent.JOB_ERROR else record.aux_logs
    number = aux.get("external_jobid") or ""
    failed = FailedJob(
        number,
        [job_of(one.wildcards).run for one in (job.jobs if job.is_group() else [job])],
        Path(logs[-1]) if number else None,
        job.restart_times > job.attempt - 1,
        lambda: why_refused(dict(job.resources.items())),
    )
    record.msg, record.event = failed.words(PROJECT), None
    return True


def is_meant(job, record):
    """Whether a message is about a job."""
    if record.event == LogEvent.GROUP_ERROR:
        return job.is_group() and job.groupid == record.groupid
    return not job.is_group() and job.jobid == record.jobid
