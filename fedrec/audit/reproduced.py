"""Whether our runs reproduce a claim under its paper's own protocol: only then is it judged under another.

The claim itself has to be found there. Where the paper prints numbers, ours must come near them: near that of
the line the claim is about, and near that of its rival. A claim over several lines has two rivals: the
strongest in print, and the one that it is compared with here.
"""

from dataclasses import dataclass

from fedrec.audit.agreement import tolerance
from fedrec.audit.effects import Case, Evidence, lines_that_diverged
from fedrec.config.claims import named_lines
from fedrec.config.conditions import PUBLISHED
from fedrec.config.printed import printed
from fedrec.runs.exact import sampled_name

BY_NUMBERS = "printed numbers"
BY_EFFECT = "claim found"
"""Which of the two ways there are was taken."""
_NOT_FOUND = "the claim is not found under its paper's protocol"


@dataclass(frozen=True)
class Gate:
    """Whether a case passes, and why not."""

    way: str
    misses: tuple[str, ...] = ()
    """Why it is not reproduced; nothing where it is."""
    lacking: tuple[str, ...] = ()
    """Lines of which there is no run under the published protocol: whether they agree is not known."""


def gate_of(case: Case, rival: str | None, is_found: bool | None, evidence: Evidence) -> Gate:
    """Whether a case, in a metric that its paper prints, is reproduced.

    `rival` is the line that it is compared with, if there is one; `is_found` says whether the claim is found
    under the published protocol, None where that is not known.
    """
    numbers = printed_numbers(case)
    if not numbers and is_found is None:
        return Gate(BY_EFFECT, lacking=case.claim.lines)
    if not numbers:
        return Gate(BY_EFFECT, () if is_found else (_NOT_FOUND,))
    strongest = max(case.claim.over, key=numbers.__getitem__)
    names = dict.fromkeys(name for name in (case.claim.line, strongest, rival) if name is not None)
    diverged = {one.line for one in lines_that_diverged(case, PUBLISHED, evidence)}
    misses, lacking = [], []
    for name in names:
        runs = [run for run in case.lines(PUBLISHED)[name] if evidence.numbered(run) is not None]
        values = evidence.values(runs, case.metric)
        if name in diverged:
            misses.append(f"{name} diverges under its paper's protocol")
        elif values is None:
            lacking.append(name)
        else:
            of_users = values.mean(axis=0)
            ours, within = float(of_users.mean()), tolerance(of_users)
            if abs(ours - numbers[name]) > within:
                misses.append(f"{name}: ours {ours:.4f}, print {numbers[name]:.4f} ± {within:.4f}")
    if not misses and is_found is False:
        misses.append(_NOT_FOUND)
    return Gate(BY_NUMBERS, tuple(misses), tuple(lacking))


def printed_numbers(case: Case) -> dict[str, float]:
    """The printed number of each line of a case; nothing where the paper does not print all of them."""
    lines = named_lines(case.artefact)
    found = {
        name: printed(
            case.claim.paper,
            case.artefact.printed,
            case.dataset,
            lines[name].printed,
            sampled_name(case.metric),
        )
        for name in case.claim.lines
    }
    numbers = {name: number.value for name, number in found.items() if number is not None}
    return numbers if len(numbers) == len(found) else {}
