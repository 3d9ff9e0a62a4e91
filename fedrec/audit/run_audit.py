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
    "direction": "which way rows moved",
    "consecutive": "how two uploads, one after the other, differ",
}
"""The attackers of `fedrec.audit.uploads`, by what they look at."""
_CHANCE = 0.5
"""The AUC of guesses at random."""
_TELLS = 0.05
"""A share of items, or an AUC, this far from chance is said to tell something."""


def audit_run(run: RunRecord, exposed: Path | None = None) -> dict[str, Any]:
    """All that is known of a run; a text in place of values says why something is not known, and what to do.

    `exposed` is the folder of the same run under only-pool; without it, it is looked for beside the run.
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


def audit_text(found: Mapping[str, Any]) -> str:
    """What `audit_run` found, as a few sentences, each in a line of its own."""
    return "\n".join(_sentences(found))


def _hit_ratio(run: RunRecord) -> dict[str, float]:
    hits = run.user_ranks().rank <= HIT
    low, high = bootstrap_interval(hits)
    return {f"hr@{HIT}": float(hits.mean()), "low": low, "high": high, "users": len(hits)}


def _hits(run: RunRecord, exposed: Path | None) -> dict[str, Any] | str:
    """Which hits vanish where held-out items may be drawn, or why that is not known."""
    if run.summary["protocol"]["negative_pool"] == "exclude_train":
        return "held-out items may be drawn under this protocol anyway"
    exposed = exposed or _only_pool_run(run)
    if exposed is None:
        return "to see which vanish where held-out items may be drawn, train the same under only-pool"
    return vanished(run, RunRecord(exposed))


def _only_pool_run(run: RunRecord) -> Path | None:
    """The same run under only-pool, where the workflow would have put it; it differs from published alone."""
    folder, paper = run.folder.absolute(), paper_of(run.protocol)
    if short_name(run.protocol) != "published" or paper is None:
        return None
    beside = folder.parents[2] / full_name("only-pool", paper) / folder.parent.name / folder.name
    return beside if (beside / SUMMARY).is_file() else None


def _uploads(run: RunRecord) -> dict[str, Any] | str:
    """What a server finds in uploads, or why that is not known."""
    method = make_method(run.id.method, run.settings, run.clients.items)
    if method is None:
        return "it has no clients that train and send"
    if not any(isinstance(operation, Upload) for operation in trace(method, 1)):
        return "its clients send nothing"
    if "users/traffic" not in extras(run.tensors):
        return "to attack what clients send, train with --record traffic"
    return attack_uploads(run.tensors, run.clients)


def _sentences(found: Mapping[str, Any]) -> Iterator[str]:
    test = found["test"]
    yield (
        f"{found['method']} on {found['dataset']} under {found['protocol']}, seed {found['seed']}, "
        f"rounds {found['rounds']}: {test[f'hr@{HIT}']:.4f} of {test['users']:,} test items are among the "
        f"first {HIT} (95 % interval over users: {test['low']:.4f} to {test['high']:.4f})."
    )
    yield from _on_draws(found["exposure"])
    hits = found["hits"]
    if isinstance(hits, str):
        yield f"Hits: {hits}."
    elif hits["share"] is not None:
        yield (
            f"Of its {hits['hits']:,} hits {hits['share']:.0%} vanish, and {hits['new']:,} new ones come, in "
            "the same run whose clients may draw held-out items."
        )
    uploads = found["uploads"]
    if isinstance(uploads, str):
        yield f"Uploads: {uploads}."
    else:
        yield from (_on_table(name, attackers) for name, attackers in uploads.items())


def _on_draws(draws: Mapping[str, Any]) -> Iterator[str]:
    if "test" not in draws:
        yield f"Draws: {draws['draws']}, so that they give nothing away."
        return
    test, counting = draws["test"], draws["counting"]
    yield (
        f"A client drew {draws['draws_per_client']:,.0f} training negatives. Of the held-out test items "
        f"{test['held_out']['never']:.0%} were never drawn; of the candidates they are ranked with, "
        f"{test['candidates']['never']:.0%}."
    )
    found, chance = counting[f"hr@{HIT}"], counting["chance"]
    meaning = (
        "the draws alone tell what was held out, and a model that remembers them scores by that"
        if found > chance + _TELLS
        else "the draws do not tell what was held out"
    )
    yield (
        f"Who counts a client's draws, and ranks what was drawn least first, has {found:.2f} of the test "
        f"items among the first {HIT}, where chance is {chance:.2f}: {meaning}."
    )
    follows = draws["score_follows_draws"]["mean"]
    if follows is not None:
        yield (
            f"Over a client's candidates the model's scores correlate with the number of draws by "
            f"{follows:+.2f} (rank correlation; -1: what was drawn least comes first, 0: unrelated)."
        )


def _on_table(name: str, attackers: Mapping[str, Mapping[str, Any]]) -> str:
    """What the best attacker finds in one table."""
    seen = {way: one for way, one in attackers.items() if one["auc"] is not None}
    if not seen:
        return f"Uploads of {name}: no watched client took part, so nothing was seen."
    way, best = max(seen.items(), key=lambda pair: abs(pair[1]["auc"] - _CHANCE))
    told = abs(best["auc"] - _CHANCE) > _TELLS
    verdict = (
        "uploads give training items away" if told else "to these attackers uploads tell next to nothing"
    )
    return (
        f"A server that looks at {_WAYS[way]} in what a client sends of {name} in one round tells its "
        f"training items from others with AUC {best['auc']:.2f} ({_CHANCE} is chance, 0 and 1 certainty). "
        f"Of its list of guesses, as long as the client's own, {best['precision_at_k']:.0%} are right, where "
        f"chance is {best['chance']:.0%}; means of {best['clients']:,} clients: {verdict}."
    )
