"""The audit of one finished run: its results as values and as text."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrec.audit.exposure import HIT, exposure, vanished
from fedrec.audit.significance import bootstrap_interval
from fedrec.audit.uploads import attack_uploads
from fedrec.config.protocol import full_name, paper_of, short_name
from fedrec.federation.model.client import Upload
from fedrec.federation.observe.recorder import extras
from fedrec.federation.program import trace
from fedrec.plan.runs import SUMMARY
from fedrec.runs.record import RunRecord
from fedrec.runs.registry import make_method

_WAYS = {
    "norm": "how far rows moved",
    "direction": "the direction in which rows moved",
    "consecutive": "the difference of two consecutive uploads",
}
"""The evidence that each attacker of `fedrec.audit.uploads` uses."""
_CHANCE = 0.5
"""The AUC of random guesses."""
_TELLS = 0.05
"""A share of items, or an AUC, this far from chance counts as information."""


def audit_run(run: RunRecord, exposed: Path | None = None) -> dict[str, Any]:
    """Audit a run; a text in place of values states why they are missing, and what to do.

    `exposed` is the folder of the same run under only-pool; by default the folder where the workflow puts it.
    """
    summary = run.summary
    return {
        **{key: summary[key] for key in ("dataset", "method", "paper", "seed", "split", "code")},
        "protocol": summary["protocol"]["name"],
        "rounds": summary["settings"]["rounds"],
        "test": _hit_ratio(run),
        "exposure": exposure(run),
        "hits": _hits(run, exposed),
        "uploads": _uploads(run),
    }


def audit_text(audit: Mapping[str, Any]) -> str:
    """The results of `audit_run` as sentences, one per line."""
    return "\n".join(_sentences(audit))


def _hit_ratio(run: RunRecord) -> dict[str, float]:
    hits = run.user_ranks().rank <= HIT
    low, high = bootstrap_interval(hits)
    return {f"hr@{HIT}": float(hits.mean()), "low": low, "high": high, "users": len(hits)}


def _hits(run: RunRecord, exposed: Path | None) -> dict[str, Any] | str:
    """The hits that vanish if held-out items may be sampled, or the reason why they are not known."""
    if run.summary["protocol"]["negative_pool"] == "exclude_train":
        return "under this protocol clients may sample held-out items, so no hit can vanish"
    exposed = exposed or _only_pool_run(run)
    if exposed is None:
        return "to see which hits vanish without the leak, train the same run under only-pool"
    return vanished(run, RunRecord(exposed))


def _only_pool_run(run: RunRecord) -> Path | None:
    """The same run under only-pool, in the folder of the workflow; only published runs have one."""
    folder, paper = run.folder.absolute(), paper_of(run.protocol)
    if short_name(run.protocol) != "published" or paper is None:
        return None
    beside = folder.parents[2] / full_name("only-pool", paper) / folder.parent.name / folder.name
    return beside if (beside / SUMMARY).is_file() else None


def _uploads(run: RunRecord) -> dict[str, Any] | str:
    """The attacks on uploads, or the reason why they are not known."""
    method = make_method(run.id.method, run.settings, run.clients.items)
    if method is None:
        return "the method has no clients that train"
    if not any(isinstance(operation, Upload) for operation in trace(method, 1)):
        return "its clients upload nothing"
    if "users/traffic" not in extras(run.tensors):
        return "to attack them, train with --record traffic"
    return attack_uploads(run.tensors, run.clients)


def _sentences(audit: Mapping[str, Any]) -> Iterator[str]:
    test = audit["test"]
    yield (
        f"{audit['method']} on {audit['dataset']} under {audit['protocol']}, seed {audit['seed']}, "
        f"rounds {audit['rounds']}: {test[f'hr@{HIT}']:.4f} of {test['users']:,} test items are among the "
        f"first {HIT} (95 % interval over users: {test['low']:.4f} to {test['high']:.4f})."
    )
    yield from _on_draws(audit["exposure"])
    hits = audit["hits"]
    if isinstance(hits, str):
        yield f"Hits: {hits}."
    elif hits["share"] is not None:
        yield (
            f"Of its {hits['hits']:,} hits {hits['share']:.0%} vanish, and {hits['new']:,} new ones appear, "
            "in the same run whose clients may sample held-out items."
        )
    uploads = audit["uploads"]
    if isinstance(uploads, str):
        yield f"Uploads: {uploads}."
    else:
        yield from (_on_table(name, attackers) for name, attackers in uploads.items())


def _on_draws(draws: Mapping[str, Any]) -> Iterator[str]:
    if "test" not in draws:
        yield f"Draws: {draws['draws']}, so draws reveal nothing."
        return
    test, counting = draws["test"], draws["counting"]
    yield (
        f"A client sampled {draws['draws_per_client']:,.0f} training negatives. Of the held-out test items "
        f"{test['held_out']['never']:.0%} were never sampled; of the candidates they are ranked with, "
        f"{test['candidates']['never']:.0%}."
    )
    hit_ratio, chance = counting[f"hr@{HIT}"], counting["chance"]
    meaning = (
        "the draws alone reveal the held-out items, and a model can remember them"
        if hit_ratio > chance + _TELLS
        else "the draws do not reveal the held-out items"
    )
    yield (
        f"Ranking items by fewest draws alone puts {hit_ratio:.2f} of the test items among the first {HIT}; "
        f"chance is {chance:.2f}: {meaning}."
    )
    follows = draws["score_follows_draws"]["mean"]
    if follows is not None:
        yield (
            "Over a client's candidates, the rank correlation of the model's scores with the number of "
            f"draws is {follows:+.2f} (-1: fewest draws rank first; 0: unrelated)."
        )


def _on_table(name: str, attackers: Mapping[str, Mapping[str, Any]]) -> str:
    """The sentence on the best attack on one table."""
    seen = {way: one for way, one in attackers.items() if one["auc"] is not None}
    if not seen:
        return f"Uploads of {name}: no watched client took part, so nothing was seen."
    way, best = max(seen.items(), key=lambda pair: abs(pair[1]["auc"] - _CHANCE))
    is_informative = abs(best["auc"] - _CHANCE) > _TELLS
    verdict = (
        "uploads reveal training items"
        if is_informative
        else "uploads reveal next to nothing to these attackers"
    )
    return (
        f"Uploads of {name}: a server that uses {_WAYS[way]} in one round separates a client's training "
        f"items from others with AUC {best['auc']:.2f} ({_CHANCE} is chance, 0 and 1 certainty). Of its "
        f"first k guesses, k being the client's number of training items, {best['precision_at_k']:.0%} are "
        f"right; chance is {best['chance']:.0%} (means of {best['clients']:,} clients): {verdict}."
    )
