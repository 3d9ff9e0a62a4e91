"""A process that has imported Snakemake and is copied for every call, most of which would be importing.

    python -P template.py < requests > statuses

A request is a line of JSON: words, a folder, an environment, and a file for what is said. The copy goes to that
folder, has that environment, and finds modules where a Python started there would; nothing of the project is
loaded before it, but packages are that its planning imports. The answer is its exit status.
"""

import gc
import json
import os
import sys
from typing import Any

import jsonschema  # noqa: F401
import pyarrow.parquet  # noqa: F401
import requests  # noqa: F401
import scipy.stats  # noqa: F401
import smart_open  # noqa: F401
from snakemake import cli


def _called(request: dict[str, Any]) -> None:
    """Be a Snakemake that was started in a folder with an environment, and end as it does."""
    said = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, said, said)):
        os.dup2(file, number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # What `python -m` puts first, and then what the environment names.
    sys.path[:0] = [request["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["snakemake", *request["words"]]
    sys.exit(cli.main(request["words"]))


def main() -> None:
    """Answer requests until there are no more."""
    # Finds all plug-ins, which every call would do again.
    cli.get_argument_parser()
    # No copy looks for garbage in what all of them have.
    gc.freeze()
    for line in sys.stdin:
        copy = os.fork()
        if copy == 0:
            _called(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
