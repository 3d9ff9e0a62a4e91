"""A Slurm of one node, on this machine, for as long as a test needs it.

Everything it has lies in one folder: configuration, key, state, logs and process ids. Nothing below `/etc` is read
or written and the ports are its own, so that it disturbs no Slurm that is there already. There is no accounting, as
there is none on many a small cluster. Its GPUs are device files that every machine has: Slurm counts them and hands
them out; nothing can be computed on them.

    python -m tests.slurm.one_node             # says what is missing here, and how to get it
    python -m tests.slurm.one_node FOLDER      # starts one, says how to use it, and stops it at Ctrl-C
"""

import os
import pwd
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "srun", "squeue", "scancel", "sinfo", "scontrol")
PACKAGES = "slurm-wlm munge"
_ADMINISTRATION = "/usr/sbin:/sbin"
"""Where daemons lie, which not every user's path names."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
"""Device files that stand for GPUs."""
_MIB = 2**20
_LEFT_TO_THE_SYSTEM = 1024
"""MiB of memory that jobs are not given."""
_SECONDS_TO_START = 60.0
_SECONDS_TO_END = 15.0
_CONFIGURATION = """\
ClusterName=one-node
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
# A job's processes are found by their parents, and bound to no core: this needs no control groups.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
# Without accounting, `squeue` alone knows how a job ended, for as long as this.
MinJobAge=3600
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
GresTypes=gpu
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
KillWait={kill_wait}
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """What this machine lacks to start one, and how to get it; empty where it can be tried."""
    absent = [name for name in (*DAEMONS, *COMMANDS) if _found(name) is None]
    if absent:
        return (
            f"{', '.join(absent)} are not installed. On Debian or Ubuntu, as root: apt-get install "
            f"--no-install-recommends {PACKAGES}"
        )
    if os.geteuid() != 0:
        return "its daemons start jobs as root alone. Call this as root, for instance in a container."
    return ""


@contextmanager
def one_node_slurm(folder: Path, gpus: int = 2, kill_wait: int = 5) -> Iterator[Mapping[str, str]]:
    """A Slurm that runs until the block ends; gives the variables by which commands find it."""
    assert gpus <= len(_DEVICES)
    place = str(folder / "slurm.conf")
    path = f"{folder}/commands:{os.environ['PATH']}:{_ADMINISTRATION}"
    environment = {"SLURM_CONF": place, "PATH": path}
    _configure(folder, gpus, kill_wait)
    _write_srun(folder / "commands/srun", place)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in _daemons(folder):
            started.append(_started(command, folder, os.environ | environment))
            if command[0] == "munged":
                _wait_until(lambda: (folder / "munge.socket").exists(), started, folder)
        _wait_until(lambda: _states(environment) == {"idle"}, started, folder)
        yield environment
        _end_jobs(environment)
    finally:
        for daemon in reversed(started):
            _end(daemon)
        _end_left(place)


def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:{_ADMINISTRATION}")


def _configure(folder: Path, gpus: int, kill_wait: int) -> None:
    for name in ("controller", "node"):
        (folder / name).mkdir(parents=True)
    # Munge trusts a key and a place that nobody else may write to.
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    controller_port, node_port = _free_ports(2)
    configuration = _CONFIGURATION.format(
        host=host,
        user=pwd.getpwuid(os.geteuid()).pw_name,
        controller_port=controller_port,
        node_port=node_port,
        folder=folder,
        kill_wait=kill_wait,
        cores=os.cpu_count(),
        memory=memory - _LEFT_TO_THE_SYSTEM,
        gpus=gpus,
    )
    (folder / "slurm.conf").write_text(configuration, encoding="utf-8")
    devices = "".join(f"NodeName={host} Name=gpu File={device}\n" for device in _DEVICES[:gpus])
    (folder / "gres.conf").write_text(devices, encoding="utf-8")


def _write_srun(path: Path, configuration: str) -> None:
    """Another `srun` before the real one: Snakemake takes the variable from it that says where Slurm is."""
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {_found("srun")} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _daemons(folder: Path) -> list[list[str]]:
    """The commands that start daemons, each in the foreground, in order."""
    own = [
        f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("key-file", "socket", "seed-file")
    ]
    munge = [
        "munged",
        "--foreground",
        f"--pid-file={folder}/munge.pid",
        f"--log-file={folder}/munge.log",
        *own,
    ]
    return [munge, ["slurmctld", "-D", "-i"], ["slurmd", "-D"]]


def _started(command: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    name = command[0]
    with (folder / f"{name}.out").open("wb") as out:
        return subprocess.Popen(
            [str(_found(name)), *command[1:]], env=environment, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip


def _wait_until(holds: Callable[[], bool], daemons: list[subprocess.Popen[bytes]], folder: Path) -> None:
    until = time.monotonic() + _SECONDS_TO_START
    while not holds():
        dead = [daemon for daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > until:
            said = [path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.out"))]
            raise RuntimeError("Slurm did not start. Its daemons said:\n" + "\n".join(said))
        time.sleep(0.1)


def _states(environment: Mapping[str, str]) -> set[str]:
    """The states of all nodes; none while the controller does not answer."""
    asked = subprocess.run(
        ["sinfo", "--noheader", "--format=%t"], env=os.environ | environment, capture_output=True, text=True
    )
    return set(asked.stdout.split())


def _end_jobs(environment: Mapping[str, str]) -> None:
    """Cancel what is left, and wait until it has ended: a node that goes leaves its jobs' processes behind."""
    everybody = os.environ | environment
    subprocess.run(["scancel", "--full", "--me"], env=everybody, check=False, capture_output=True)
    until = time.monotonic() + _SECONDS_TO_END
    while time.monotonic() < until:
        asked = subprocess.run(["squeue", "--noheader"], env=everybody, capture_output=True, check=False)
        if not asked.stdout.strip():
            return
        time.sleep(0.2)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _end_left(configuration: str) -> None:
    """End processes of jobs that lost their parents, by which alone this Slurm knew them."""
    own = f"SLURM_CONF={configuration}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        # One that has ended since, or is another user's.
        with suppress(OSError):
            variables = (process / "environ").read_bytes().split(b"\0")
            if own in variables and any(one.startswith(b"SLURM_JOB_ID=") for one in variables):
                os.kill(int(process.name), signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at, all different."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _main(arguments: list[str]) -> None:
    lacks = missing()
    if lacks:
        sys.exit(f"Not tested through Slurm: {lacks}")
    if arguments:
        _serve(Path(arguments[0]).resolve())


def _serve(folder: Path) -> None:
    """Start one, and stop it when a signal comes."""
    awaited = (signal.SIGINT, signal.SIGTERM)
    with one_node_slurm(folder) as environment:
        signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
        print("In another shell (Ctrl-C or SIGTERM here stops it):", flush=True)
        for name, value in environment.items():
            print(f"export {name}={shlex.quote(value)}", flush=True)
        signal.sigwait(awaited)


if __name__ == "__main__":
    _main(sys.argv[1:])
