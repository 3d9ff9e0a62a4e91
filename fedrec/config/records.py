"""Records of runs beyond their final state, as texts: `vectors=94,233`, `abundance`.

`fedrec.federation.observe.recorder` says what each kind is.
"""

from collections.abc import Iterable, Mapping, Sequence

from fedrec.errors import ConfigurationError, did_you_mean

TRAFFIC = "traffic"
"""What the attack on uploads reads: what clients receive and send."""
KINDS = ("vectors", "uploads", TRAFFIC, "weights", "abundance")


def merged_records(records: Iterable[str]) -> dict[str, list[int]]:
    """What texts such as `vectors=94,233` and `abundance` ask for: users by kind, sorted, each once."""
    wanted: dict[str, set[int]] = {}
    for text in records:
        kind, _, users = text.partition("=")
        if kind not in KINDS:
            raise ConfigurationError(
                f"--record {text}: unknown kind '{kind}'.{did_you_mean(kind, KINDS)} Known kinds: "
                f"{', '.join(KINDS)}."
            )
        try:
            listed = {int(user) for user in users.split(",")} if users else set()
        except ValueError:
            raise ConfigurationError(
                f"--record {text}: users must be numbers joined by commas, for example {kind}=94,233."
            ) from None
        if kind != TRAFFIC and bool(listed) == (kind == "abundance"):
            raise ConfigurationError(
                f"--record {text}: abundance covers every user. Write abundance without numbers."
                if listed
                else f"--record {text}: name the users, for example {kind}=94,233."
            )
        if kind in wanted and bool(wanted[kind]) != bool(listed):
            raise ConfigurationError(f"--record {text}: {kind} is given with and without users. Keep one.")
        wanted.setdefault(kind, set()).update(listed)
    return {kind: sorted(wanted[kind]) for kind in KINDS if kind in wanted}


def spelled_records(records: Mapping[str, Sequence[int]]) -> list[str]:
    """The texts that ask for users by kind, in one order."""
    return [
        kind + ("=" + ",".join(map(str, sorted(records[kind]))) if records[kind] else "")
        for kind in KINDS
        if kind in records
    ]
