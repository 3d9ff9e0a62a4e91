"""The table of the cost of noise on uploads for simple federated methods, from stored runs."""

from docs.tables.numbers import REFERENCE, ROOT, markdown

_DATASET = "ml-100k"
_NOISE = {
    "fcf[alpha=0.308][d=32][penalty=1.63][rate=0.881]": (
        "",
        "[ldp=0.01]",
        "[ldp=0.1]",
        "[ldp=0.5]",
        "[ldp=2][ldp_clip=100]",
        "[ldp=200][ldp_clip=100]",
    ),
    "fedease[penalty=174]": ("", "[ldp=0.5]", "[ldp=20][ldp_clip=1000]"),
    "fedmf[d=16][item_factor=7.92][local_epochs=1][rate=0.141]": ("", "[ldp=0.1]", "[ldp=0.5]"),
}
"""Noise settings, added to methods with the settings of an earlier search."""


def noise() -> str:
    """Metrics with noise on uploads, and the epsilon of a client's uploads; seed 0."""
    from fedrec.config.methods import load_methods, resolve
    from fedrec.plan.runs import run_of
    from fedrec.runs.store import RunStore

    methods, store = load_methods(ROOT / "config/methods.yaml"), RunStore(REFERENCE)
    lines = []
    for name, levels in _NOISE.items():
        for level in levels:
            method = name + level
            _, _, paper = resolve(methods, method, None, _DATASET)
            record = store.record(run_of(methods, paper, _DATASET, "clean", method, 0).folder)
            scale, clip = record.settings["ldp"], record.settings["ldp_clip"]
            account = record.summary.get("privacy", {}).get("uploads", {})
            has_solution = record.has_numbers() and record.diverged is None
            exact = record.exact_metrics or {}
            metrics = (
                [record.metric("hr@10"), record.metric("ndcg@10"), exact.get("exact_ndcg@10")]
                if has_solution
                else [None] * 3
            )
            lines.append(
                (
                    f"`{name}`",
                    f"{scale:g}" if scale else "none",
                    "–" if clip is None else f"{clip:g}",
                    _epsilon(account.get("epsilon_per_round")),
                    _epsilon(account.get("epsilon")),
                    *("–" if value is None else f"{value:.4f}" for value in metrics),
                    "" if has_solution else "no solution",
                )
            )
    head = ("method", "`ldp`", "`ldp_clip`", "ε a round", "ε in all", "HR@10", "NDCG@10", "exact NDCG@10", "")
    return markdown(head, lines)


def _epsilon(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
