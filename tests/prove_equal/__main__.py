"""Proves that two commits give the same numbers, and appends the proof to the ledger of equal code.

    python -m tests.prove_equal BEFORE [AFTER]              compare two commits (default: HEAD) on this CPU
    python -m tests.prove_equal BEFORE AFTER --gpu B.json A.json
                                                            use recordings of both commits on a GPU as well
    python -m tests.prove_equal --plan PLAN.json --device cuda
                                                            write the plan of a recording on a GPU

Every method, plug-in and variant is trained by every engine: curves, ranks and scores must be the same bytes. Every
generated kernel, for CPU and GPU, of every method, variant and setting of the stored runs must have the same text.
Where texts differ, a recording of both commits on a GPU must show the same bytes. Every changed statement must have
been executed, and changed statements must spell the same literals and comparisons. Otherwise nothing is written, and
the status is 1.

A recording on a GPU: PYTHONPATH=TREE python tests/prove_equal/recorder.py PLAN.json TREE DATA OUT.json, where DATA is
the folder `data/demo` that the comparison leaves in its work folder. `--cpu` and `--gpu` take recordings of both
commits that were made elsewhere; all must be of one machine, and made by this recorder and plan.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedrec.config.methods import load_methods, setting_text
from fedrec.config.modules import method_names
from fedrec.config.names import parse
from fedrec.plan.equal_code import Ledger, Proof
from fedrec.runs.store import RunStore
from tests.compositions import compositions
from tests.contract.matrix import VARIANTS
from tests.prove_equal import recorder
from tests.prove_equal.comparison import (
    Version,
    differences,
    other_texts_of,
    pairs,
    refused_alike,
    unexecuted_counts,
)
from tests.prove_equal.history import History
from tests.same_numbers import METHODS, ROOT, prepared

WORK = ROOT / "build/prove_equal"
"""Where recordings are kept; a recording of a commit is made once."""
_ROUNDS = (1, 2, 3)
"""Rounds whose kernels are compared: methods may change what they train."""


def plan_of(device: str, methods: Sequence[str] = (), engines: Sequence[str] = ()) -> dict[str, Any]:
    """What a recording trains and generates: everything, or what some `methods` need."""
    everything = [*method_names(), *compositions(load_methods(METHODS)), *VARIANTS]
    names = [name for name in everything if not methods or _base(name) in methods]
    chosen = engines or (("fused", "batched") if device == "cuda" else ("loop", "fused", "batched"))
    plan = {
        "device": device,
        "recorder": recorder.own_hash(),
        "methods": sorted({_base(name) for name in names}),
        "trainings": [kind for engine in chosen for kind in _trainings(engine, names)],
        "kernels": [] if device == "cuda" else _kernel_cases(names),
    }
    return plan | {"checksum": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()}


def _trainings(engine: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """How an engine trains methods; the loop takes up to a minute a round, so it trains variants for one round."""
    if engine == "fused":
        return [{"engine": engine, "names": list(names), "protocols": ["published", "clean"], "rounds": 3}]
    slow = [name for name in names if engine == "loop" and "[" in name]
    kinds = ((slow, 1), ([name for name in names if name not in slow], 2))
    return [
        {"engine": engine, "names": chosen, "protocols": ["clean"], "rounds": rounds}
        for chosen, rounds in kinds
        if chosen
    ]


def _base(name: str) -> str:
    """A method with its plug-in, without changed settings."""
    composition = parse(name)
    return (
        composition.backbone if composition.plugin is None else f"{composition.backbone}+{composition.plugin}"
    )


def _kernel_cases(names: Sequence[str]) -> list[dict[str, Any]]:
    """The methods and variants, and every setting with which a stored run was trained."""
    cases = [{"method": name, "set": [], "rounds": list(_ROUNDS)} for name in names]
    known = {_base(name) for name in names}
    stored: dict[tuple[str, ...], None] = {}
    for run in RunStore(ROOT / "results/reference").every_run():
        base = _base(run.summary["method"])
        if base in known:
            changes = (f"{key}={setting_text(value)}" for key, value in run.summary["settings"].items())
            stored.setdefault((base, *sorted(changes)))
    return cases + [{"method": base, "set": changes, "rounds": [1]} for base, *changes in stored]


def recording(tree: Path, plan: Mapping[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """The recording of a tree on this CPU, made now by a process of its own unless `folder` has it."""
    name = f"{tree.name}-{plan['checksum'][:12]}"
    out = folder / f"{name}.json"
    if not out.is_file():
        plan_file, unfinished = folder / f"{name}.plan", folder / f"{name}.part"
        plan_file.write_text(json.dumps(plan))
        command = [sys.executable, str(recorder.__file__), *map(str, (plan_file, tree, data, unfinished))]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tree)})
        unfinished.rename(out)
    return checked(out, tree, plan)


def checked(file: Path, tree: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read a recording; it must be of this tree, by this plan."""
    evidence: dict[str, Any] = json.loads(file.read_text())
    if evidence["tree"] != recorder.tree_hash(tree):
        raise SystemExit(f"{file}: is no recording of commit {tree.name}. Remove it, and record that commit.")
    if evidence["plan"] != plan["checksum"]:
        raise SystemExit(
            f"{file}: was recorded by another plan or recorder. Write the plan again (--plan), and record."
        )
    return evidence


def versions_of(parsed: argparse.Namespace, trees: Sequence[Path]) -> list[Version]:
    """Both trees with their evidence: recorded here, or brought from elsewhere."""
    plan = plan_of("cpu", parsed.methods, parsed.engines)
    if parsed.cpu:
        cpu = [checked(file, tree, plan) for file, tree in zip(parsed.cpu, trees, strict=True)]
    else:
        cpu = recorded_here(trees, plan)
    if not parsed.gpu:
        return [Version(tree / "fedrec", one) for tree, one in zip(trees, cpu, strict=True)]
    plan = plan_of("cuda", parsed.methods, parsed.engines)
    gpu = [checked(file, tree, plan) for file, tree in zip(parsed.gpu, trees, strict=True)]
    again = checked(parsed.gpu_again, trees[0], plan) if parsed.gpu_again else None
    known = () if parsed.unstable_of is None else _unstable_of(parsed.unstable_of)
    return [
        Version(trees[0] / "fedrec", cpu[0], gpu[0], again, known),
        Version(trees[1] / "fedrec", cpu[1], gpu[1]),
    ]


def _unstable_of(number: int) -> Sequence[str]:
    """The runs that an earlier proof found to differ each time on a GPU."""
    proofs = [proof for proof in Ledger.read().proofs if proof.number == number]
    if not proofs:
        raise SystemExit(f"--unstable-of {number}: the ledger has no such proof.")
    unstable: Sequence[str] = proofs[0].compared.get("unstable_on_gpu", ())
    return unstable


def recorded_here(trees: Sequence[Path], plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The recordings of both trees on this CPU, at the same time."""
    WORK.mkdir(parents=True, exist_ok=True)
    data = WORK / "data/demo"
    if not data.is_dir():
        prepared(WORK / "data")
    with ThreadPoolExecutor(len(trees)) as pool:
        return list(pool.map(lambda tree: recording(tree, plan, data, WORK), trees))


def compare(parsed: argparse.Namespace) -> None:
    """Compare two commits; append the proof, or print why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        # Unpacked for this comparison: a tree that was kept could have been edited.
        history = History(ROOT, Path(folder))
        commits = [history.commit(name) for name in (parsed.before, parsed.after)]
        versions = versions_of(parsed, [history.tree(commit) for commit in commits])
        reasons = (parsed.literals, parsed.unexecuted, parsed.other_texts)
        found = list(differences(versions[0], versions[1], *reasons))
    compared = summary_of(versions, parsed)
    print(json.dumps(compared, indent=2))
    if found:
        print("\n".join(f"NOT EQUAL: {reason}" for reason in found))
        raise SystemExit(1)
    equal = tuple(pairs(versions[0].cpu, versions[1].cpu))
    if not equal:
        print("No fingerprint differs: there is nothing to prove.")
    elif parsed.dry_run:
        print(f"EQUAL: {len(equal)} fingerprints would be added to the ledger.")
    else:
        Ledger.read().append(Proof(0, datetime.now(UTC).date().isoformat(), *commits, compared, equal))
        print(f"EQUAL: {len(equal)} fingerprints of {commits[0][:8]} are equal to those of {commits[1][:8]}.")


def summary_of(versions: Sequence[Version], parsed: argparse.Namespace) -> dict[str, Any]:
    """What a proof says of the sets that were compared."""
    cpu = versions[1].cpu
    engines: dict[str, int] = {}
    for key in cpu["runs"]:
        engines[key.rpartition(" ")[2]] = engines.get(key.rpartition(" ")[2], 0) + 1
    devices = [one for one in (cpu, versions[1].gpu) if one is not None]
    return {
        "methods": sorted({key.partition("/")[0] for key in versions[0].cpu["fingerprints"]}),
        "runs": engines,
        "refused_alike": len(refused_alike(versions[0].cpu, cpu)),
        "runs_on_gpu": len(versions[1].gpu["runs"]) if versions[1].gpu else 0,
        "kernel_texts": len(cpu["kernels"]),
        "machines": [one["machine"] for one in devices],
        "evidence": [_checksum(one) for version in versions for one in (version.cpu, version.gpu) if one],
        **({"unstable_on_gpu": versions[0].unstable} if versions[0].unstable else {}),
        **({} if parsed.unstable_of is None else {"unstable_by_proof": parsed.unstable_of}),
        **({"other_literals": parsed.literals} if parsed.literals else {}),
        **(
            {"other_texts": parsed.other_texts, "kernels": other_texts_of(versions[0], versions[1])}
            if parsed.other_texts
            else {}
        ),
        **(
            {"unexecuted": parsed.unexecuted, "statements": unexecuted_counts(versions[0], versions[1])}
            if parsed.unexecuted
            else {}
        ),
    }


def _checksum(evidence: dict[str, Any]) -> str:
    compared = {key: evidence[key] for key in ("tree", "plan", "runs", "kernels", "compiled")}
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()


def main() -> None:
    """Compare commits, or write a plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", nargs="?")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--methods", nargs="+", default=(), help="prove equality for these alone")
    parser.add_argument(
        "--engines", nargs="+", default=(), help="train by these alone; proves only their runs"
    )
    files = {"nargs": 2, "type": Path, "metavar": ("BEFORE.json", "AFTER.json")}
    parser.add_argument("--cpu", help="recordings on another CPU, instead of new ones here", **files)
    parser.add_argument("--gpu", help="recordings on a GPU", **files)
    parser.add_argument(
        "--gpu-again",
        type=Path,
        metavar="BEFORE.json",
        help="a second recording of the older commit: runs that differ there\nare compared by kernel texts alone",
    )
    parser.add_argument(
        "--unstable-of",
        type=int,
        metavar="NUMBER",
        help="a proof of the ledger whose second recording found such runs: instead of --gpu-again",
    )
    parser.add_argument(
        "--literals", metavar="REASON", help="why changed statements spell other literals or comparisons"
    )
    parser.add_argument(
        "--unexecuted",
        metavar="REASON",
        help="why no recorded run executes some changed statements: as those that\nonly losses of other methods reach",
    )
    parser.add_argument(
        "--other-texts",
        metavar="REASON",
        help="why some kernels have other texts, though every recorded run has the same numbers",
    )
    parser.add_argument("--dry-run", action="store_true", help="compare, and write nothing")
    parser.add_argument("--plan", type=Path, help="write the plan of a recording to this file, and end")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of that plan")
    parsed = parser.parse_args()
    if parsed.plan is not None:
        parsed.plan.write_text(json.dumps(plan_of(parsed.device, parsed.methods, parsed.engines)))
    elif parsed.before is None:
        parser.error("name the older commit")
    else:
        compare(parsed)


if __name__ == "__main__":
    main()
