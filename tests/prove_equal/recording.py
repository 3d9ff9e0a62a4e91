"""Recordings of source trees in processes of their own: each imports the package of its tree."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.prove_equal import recorder


def recording(tree: Path, plan: Mapping[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """The recording of a tree on this CPU by a plan, made now unless `folder` has it."""
    name = f"{tree.name}-{plan['checksum'][:12]}"
    out = folder / f"{name}.json"
    if not out.is_file():
        plan_file, unfinished = folder / f"{name}.plan", folder / f"{name}.part"
        plan_file.write_text(json.dumps(plan))
        command = [sys.executable, str(recorder.__file__), *map(str, (plan_file, tree, data, unfinished))]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tree)})
        unfinished.rename(out)
    evidence: dict[str, Any] = json.loads(out.read_text())
    return evidence
