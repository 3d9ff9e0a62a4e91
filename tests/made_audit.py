"""Tables of an audit that nobody made runs for, written by the functions that write them in earnest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrec.audit.granularity import granularity_rows
from fedrec.config.conditions import MAIN
from fedrec.config.papers import load_papers
from fedrec.config.printed import Printed
from fedrec.plan.runs import RunId
from fedrec.reporting.tables.audit import exposure, granularity, protocols, significance, uploads, verdicts
from fedrec.reporting.tables.table import Row, write_forms
from tests.conftest import ROOT
from tests.made_results import png, svg

PAPERS = load_papers(ROOT / "config/papers")
NAMES = (
    "audit_protocols", "audit_exposure", "audit_uploads", "audit_significance", "audit_granularity", "verdicts",
)  # fmt: skip
FORMS = dict.fromkeys(NAMES, "table") | {"audit_ranks": "figure"}
ORIGIN = {"split_hash": "ab" * 32, "code": "ef" * 32}
METHODS = {"draw-counter": "draw-counter", "fedmf": "FedMF <i>x</i>", "pfedclr": "PFedCLR"}
HITS = {
    "published": {"draw-counter": 1.0, "fedmf": 0.5, "pfedclr": 0.99},
    "only-pool": {"draw-counter": 0.1, "fedmf": 0.48, "pfedclr": 0.3},
    "upto-pool": {"draw-counter": 0.1, "fedmf": 0.48, "pfedclr": 0.3},
    "clean": {"draw-counter": 0.09, "fedmf": 0.46, "pfedclr": 0.27},
}


def write_audit(results: Path) -> None:
    """Write every table of `NAMES` below `results`, and the figure of ranks."""
    tables = results / "tables"
    rows = step_rows()
    write_forms(tables / "audit_protocols", rows, protocols.step_tables(rows), protocols.CHAPTER)
    rows = exposure_rows()
    write_forms(tables / "audit_exposure", rows, exposure.exposure_tables(rows), exposure.CHAPTER)
    rows = upload_rows()
    write_forms(tables / "audit_uploads", rows, uploads.upload_tables(rows), uploads.CHAPTER)
    rows = significance_rows()
    write_forms(
        tables / "audit_significance", rows, significance.significance_tables(rows), significance.CHAPTER
    )
    rows = granularity_rows(
        {("pfedclr", "ml-100k"): 943},
        {
            ("pfedclr", "Table 1", dataset, method, "", "hr@10"): Printed(value, None, "fraction", 4)
            for dataset in ("ml-100k", "filmtrust")
            for method, value in (("PFedCLR", 0.9989), ("FedMF", 0.4857), ("PFedRec", 0.7091))
        },
    )
    write_forms(
        tables / "audit_granularity", rows, [granularity.granularity_table(rows)], granularity.CHAPTER
    )
    write_verdicts(results, "verdicts", verdict_rows())
    write_ranks(results, "audit_ranks")


def write_verdicts(results: Path, name: str, rows: list[Row]) -> None:
    chapter = replace(verdicts.CHAPTER, counts=list(verdicts.claim_counts(rows, PAPERS)))
    under = [MAIN]
    stem = results / "tables" / name
    write_forms(
        stem,
        rows,
        verdicts.verdict_tables(rows, under),
        chapter,
        [verdicts.table_of_all(rows, under)],
    )


def write_ranks(results: Path, name: str) -> None:
    """The figure of ranks, in grey."""
    folder = results / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.csv").write_text("dataset,step,rank\nml-100k,clean,1\n")
    (folder / f"{name}.txt").write_text("Ranks of methods: 1 < 2 & so on.\n")
    (folder / f"{name}.png").write_bytes(png())
    (folder / f"{name}.svg").write_text(svg())
    (folder / f"{name}.pdf").write_bytes(b"%PDF-1.4\nnothing\n%%EOF\n")


def step_rows() -> list[Row]:
    return [
        {
            "dataset": dataset, "paper": "pfedclr", "step": step, "method": method, "title": METHODS[method],
            "hr@10": hits, "ndcg@10": hits / 2, "round_rule": "best_test", "protocol": protocol_of(step), "rounds": 100, "seeds": "0 1",
            **ORIGIN, "runs": [RunId("pfedclr", dataset, protocol_of(step), method, 0).folder],
            "rank": 1 + sum(other > hits for other in found.values()),
        }
        for dataset in ("ml-100k", "filmtrust")
        for step, found in HITS.items()
        for method, hits in found.items()
    ]  # fmt: skip


def protocol_of(kind: str) -> str:
    """The full name of a protocol."""
    return kind if kind == "clean" else f"{kind}-pfedclr"


def exposure_rows() -> list[Row]:
    return [
        {
            "title": METHODS[method], "dataset": "ml-100k", "paper": "pfedclr", "protocol": protocol_of(kind), "method": method,
            "seeds": "0", "rounds": 100, "test_held_out_mean": 0.0 if kind == "published" else 7.5,
            "test_candidates_mean": 7.5, "test_held_out_never": 1.0 if kind == "published" else 0.01,
            "test_candidates_never": 0.01, "score_follows_draws": -1.0 if method == "draw-counter" else -0.2, **ORIGIN,
            **({"vanished_share": 0.9, "new_share": 0.05} if (kind, method) == ("published", "pfedclr") else {}),
        }
        for kind in ("published", "clean")
        for method in METHODS
    ]  # fmt: skip


def upload_rows() -> list[Row]:
    return [
        {
            "dataset": "ml-100k", "paper": "pfedclr", "protocol": "clean", "method": method, "title": method, "seeds": "0",
            "table": "Q", "clients": 64, "chance": 0.05,
            **{
                f"{attacker}_{measure}": value
                for attacker in ("norm", "direction", "consecutive")
                for measure, value in (("auc", auc), ("precision_at_k", auc / 2))
            },
            "hr@10": 0.4, "utility_change": change, **ORIGIN,
        }
        for method, auc, change in (("fedmf", 0.98, None), ("fedmf[ldp=0.5]", 0.61, -0.125))
    ]  # fmt: skip


def significance_rows() -> list[Row]:
    rows: list[Row] = []
    for kind in ("published", "clean"):
        for metric in ("hr@10", "ndcg@10"):
            found = sorted(HITS[kind].items(), key=lambda one: -one[1])
            for method, value in found:
                row: dict[str, Any] = {
                    "dataset": "ml-100k", "protocol": protocol_of(kind), "metric": metric, "method": method,
                    "title": METHODS[method], "value": value, "users": 943,
                }  # fmt: skip
                if method != found[0][0]:
                    difference = value - found[0][1]
                    row |= {
                        "best_difference": difference,
                        "best_interval": f"[{difference - 0.02:+.4f}, {difference + 0.02:+.4f}]",
                        "best_effect": -0.5, "best_randomisation_holm": 0.0002, "best_wilcoxon_holm": 0.0001,
                    }  # fmt: skip
                rows.append({**row, "seeds": "0", **ORIGIN})
    return rows


def verdict_rows(paper: str = "pfedclr") -> list[Row]:
    """A claim that holds on one dataset and is not found on another, one reversed on one, and one not tested.

    Another paper has nothing tested.
    """
    rows = [
        *_claim(
            paper,
            "beats",
            "It is better & <i>best</i>",
            {"ml-100k": ("holds", 0.2), "lastfm-2k-c": ("not found", 0.01)},
        ),
        *_claim(paper, "helps", "A part of it helps", {"ml-100k": ("reversed", -0.3), "ml-1m": None}),
        *_claim(paper, "noise", "Noise costs it little", {"ml-1m": None}),
    ]
    return [*rows, *_claim("fedem", "beats", "FedEM is better", {"ml-100k": None})]


def _claim(paper: str, name: str, text: str, found: dict[str, tuple[str, float] | None]) -> list[Row]:
    about = {"paper": paper, "claim": f"{paper}-{name}", "text": text, "kind": "beats"}
    rows: list[Row] = []
    for dataset, one in found.items():
        for metric in ("hr@10", "ndcg@10"):
            row = {**about, "dataset": dataset, "metric": metric, "printed": 0.25, "not_counted": ""}
            row["clean_repeats"] = ""
            row["clean_decides"] = "yes" if metric == "hr@10" else ""
            if one is None:
                lacking = {"reason": f"{dataset}: not trained here (clean)", "command": "snakemake x"}
                open_ = dict.fromkeys(("clean_verdict", "published_verdict"), "not testable here")
                rows.append({**row, **open_, **lacking})
                continue
            effects = {
                f"{kind}{end}": one[1] + change
                for kind in ("published", "clean")
                for end, change in (("", 0.0), ("_low", -0.05), ("_high", 0.05))
            }
            origin = {
                "rounds": "100",
                "seeds": "0",
                "protocols": "clean",
                "splits": "abababab",
                "code": "efefefef",
            }
            verdicts_of_it = {
                "published_verdict": "holds",
                "clean_verdict": one[0],
                "clean_gate": "printed numbers",
                "clean_reason": "",
                "published_seeds": "0",
                "clean_seeds": "0",
            }
            rows.append({**row, **effects, **verdicts_of_it, "reason": "", "command": "", **origin})
    words = [one[0] if one else "not testable here" for one in found.values()]
    overall = ", ".join(f"{word} {words.count(word)}" for word in dict.fromkeys(words))
    return [*rows, {**about, "dataset": "all", "metric": "hr@10", "clean_verdict": overall}]
