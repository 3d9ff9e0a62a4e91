"""The reproduction gate: only a claim that our runs reproduce under its paper's protocol is judged further.

The claim must be found under that protocol. If the paper prints numbers, ours must be near them for every
line that the claim names. A claim over all other federated lines names none: for it the gate checks the
claim's own line and two rivals, the strongest in print and the one that it is compared with here. If exact
ranks decide, printed exact numbers must agree, too, as far as there are any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fedrec.audit.agreement import tolerance
from fedrec.audit.effects import Case, Evidence, lines_that_diverged
from fedrec.config.claims import Claim, named_lines
from fedrec.config.conditions import PUBLISHED
from fedrec.config.printed import printed
from fedrec.runs.exact import exact_name, is_exact, sampled_name

BY_NUMBERS = "printed numbers"
BY_EFFECT = "claim found"
"""The two checks of a claim."""
_NOT_FOUND = "the claim is not found under its paper's protocol"


@dataclass(frozen=True)
class Gate:
    """The result of the gate for a case, with the reasons for a failure."""

    way: str
    misses: tuple[str, ...] = ()
    """The reasons why the claim is not reproduced; empty if it is."""
    lacking: tuple[str, ...] = ()
    """Lines without a run under the published protocol, whose agreement is unknown."""


def gate_of(
    case: Case, rival: str | None, is_found: bool | None, evidence: Evidence, *, by_exact_ranks: bool
) -> Gate:
    """Whether a case, in a metric that its paper prints, is reproduced.

    `rival` is the line that it is compared with, if any. `is_found` is whether the claim is found under the
    published protocol, None if unknown. If exact ranks decide, the numbers of the paper's exact tables must
    agree, too.
    """
    numbers = printed_by_line(case)
    if not numbers and is_found is None:
        return Gate(BY_EFFECT, lacking=case.claim.lines)
    if not numbers:
        return Gate(BY_EFFECT, () if is_found else (_NOT_FOUND,))
    gates = [_numbers_gate(case, rival, numbers, evidence)]
    if by_exact_ranks and not is_exact(case.metric):
        exact = replace(case, metric=exact_name(case.metric))
        gates.append(_numbers_gate(exact, rival, _numbers_in_print(exact), evidence))
    misses = [miss for gate in gates for miss in gate.misses]
    if not misses and is_found is False:
        misses.append(_NOT_FOUND)
    lacking = [name for gate in gates for name in gate.lacking]
    return Gate(BY_NUMBERS, tuple(dict.fromkeys(misses)), tuple(lacking))


def _numbers_gate(case: Case, rival: str | None, numbers: Mapping[str, float], evidence: Evidence) -> Gate:
    """Check that our numbers are near the printed ones."""
    names = [name for name in _required_lines(case.claim, rival, numbers) if name in numbers]
    diverged = {one.line for one in lines_that_diverged(case, PUBLISHED, evidence)}
    exactly = ", exact" if is_exact(case.metric) else ""
    misses, lacking = [], []
    for name in names:
        runs = [run for run in case.lines(PUBLISHED)[name] if evidence.numbered(run) is not None]
        values = evidence.values(runs, case.metric)
        if name in diverged:
            misses.append(f"{name} diverges under its paper's protocol")
        elif values is None:
            lacking.append(name + exactly)
        else:
            of_users = values.mean(axis=0)
            ours, within = float(of_users.mean()), tolerance(of_users)
            if abs(ours - numbers[name]) > within:
                misses.append(f"{name}{exactly}: ours {ours:.4f}, print {numbers[name]:.4f} ± {within:.4f}")
    return Gate(BY_NUMBERS, tuple(misses), tuple(lacking))


def _required_lines(claim: Claim, rival: str | None, numbers: Mapping[str, float]) -> Iterable[str]:
    """The lines whose numbers must agree: those that the claim names, or its own and two rivals."""
    if not claim.over_others:
        return claim.lines
    strongest = sorted(numbers.keys() & set(claim.over), key=numbers.__getitem__)[-1:]
    return dict.fromkeys(name for name in (claim.line, *strongest, rival) if name is not None)


def printed_by_line(case: Case) -> dict[str, float]:
    """The printed number of each line of a case; empty unless the paper prints all of them."""
    numbers = _numbers_in_print(case)
    return numbers if len(numbers) == len(case.claim.lines) else {}


def _numbers_in_print(case: Case) -> dict[str, float]:
    """The printed numbers of lines of a case in its metric, by the lines' names.

    Exact numbers are those of the same runs in the paper's exact tables.
    """
    own = named_lines(case.artefact)
    if is_exact(case.metric):
        lines = [
            (name, table, line)
            for table in case.claim.exact
            for line in table.lines
            for name in case.claim.lines
            if line.run == own[name].run
        ]
    else:
        lines = [(name, case.artefact, own[name]) for name in case.claim.lines]
    numbers = {
        name: printed(case.claim.paper, table.printed, case.dataset, line.printed, sampled_name(case.metric))
        for name, table, line in lines
    }
    return {name: number.value for name, number in numbers.items() if number is not None}
