"""Random methods, held to the plain loop: parameters, scores, losses and rounds drawn from a vocabulary.

    python -m tests.programs.random_programs --count 1000 --first-seed 0
    python -m tests.programs.random_programs --count 200 --engine fused batched --device cuda
    python -m tests.programs.random_programs --first-seed 17 --count 1 --show

A program is the text of a method file, made from its seed alone. One that an engine trains to other numbers is made
smaller while it still does, and printed. Values stay finite by construction: a logarithm is of 1 and more, a divisor
is 1 and more, an exponential is of what is bounded.
"""

import argparse
import hashlib
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from fedrec.federation.model.tables import PlainBatch
from tests.programs.cases import Case
from tests.programs.outcome import (
    EQUAL,
    OUTCOMES,
    UNSTEADY,
    WRONG,
    Outcome,
    outcome_of,
)

ITEMS = 24
_ROWS = ((1, 4, 7), (2, 5), (1, 1, 6), (3,), (8, 1, 2, 3))
_DEPTH = 4


# Expressions


@dataclass(frozen=True)
class Expr:
    """A piece of a loss: `text` with a place for each part. Its kind says of what shape it is.

    `R4` a row of 4 numbers for each sample, `S` a number for each sample, `V4` a vector of 4, `O` a number of a client
    that meets samples, `C` a number of a client as a loss is one, `W4` a whole table, `M4x3` a matrix.
    """

    kind: str
    text: str
    parts: tuple["Expr", ...] = ()

    def __str__(self) -> str:
        return self.text.format(*self.parts)

    @property
    def size(self) -> int:
        return 1 + sum(part.size for part in self.parts)

    def smaller(self) -> Iterator["Expr"]:
        """What may stand in its place: a piece of it, a number, or itself with a smaller part."""
        yield from (piece for piece in self.pieces() if piece.kind == self.kind)
        for place, part in enumerate(self.parts):
            for less in part.smaller():
                yield replace(self, parts=(*self.parts[:place], less, *self.parts[place + 1 :]))

    def pieces(self) -> Iterator["Expr"]:
        for part in self.parts:
            yield part
            yield from part.pieces()


_ONE_TO_ONE = (
    "torch.sigmoid({0})", "torch.tanh({0})", "functional.softplus({0})", "{0}.abs()", "{0}.square()", "(-{0})",
    "torch.relu({0})", "functional.leaky_relu({0}, 0.1)", "functional.elu({0})", "functional.gelu({0})",
    "functional.silu({0})", "torch.sin({0})", "torch.cos({0})", "torch.exp(torch.tanh({0}))", "torch.atan({0})",
    "torch.log1p({0}.square())", "torch.log({0}.square() + 1)", "(1 + {0}.square()).sqrt()",
    "(1 + {0}.square()).rsqrt()", "(1 + {0}.square()).reciprocal()", "((1 + {0}.square()) ** 0.75)",
    "((1 + {0}.square()) ** -1.5)", "{0}.clamp(-0.8, 1.1)", "{0}.clamp(min=-0.3)", "{0}.clamp(max=0.6)",
    "({0} * 0.5)", "({0} + 0.3)", "(0.7 - {0})", "({0} / 3)", "{0}.detach()", "{0}.clone()", "({0} * a)", "({0} + a)",
    "((1 + {0}.square()) ** a)", "torch.where({0} > 0.2, {0}, 0.2)", "(({0} > 0.1).to({0}.dtype))", "{0}.tanh().expm1()",
    "functional.logsigmoid({0})", "torch.erf({0})", "({0}.sign().detach() * {0})", "functional.hardtanh({0}, -0.9, 0.7)",
    "torch.rsub({0}, 0.4)", "({0} * k)", "({0}.tanh() ** k)", "{0}.masked_fill({0} > 0.7, 0.25)",
)  # fmt: skip
"""Functions of a number; `a` is a float and `k` a whole number that change with the round."""
_TWO_TO_ONE = (
    "({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / (1 + {1}.square()))", "torch.maximum({0}, {1})",
    "torch.minimum({0}, {1})", "torch.where({0} > {1}, {0}, 0.5 * {1})", "torch.logaddexp({0}, {1})",
    "(({0} > 0) & ({1} > 0)).to({0}.dtype)", "torch.hypot({0}, 1 + {1}.square())", "torch.lerp({0}, {1}, 0.3)",
    "torch.atan2({0}, 1 + {1}.square())", "torch.add({0}, {1}, alpha=0.5)", "torch.where({1} > 0, {0}, {1})",
    "((({0} > 0) | ({1} > 0)).to({0}.dtype) * {0})", "((1 + {0}.square()) ** {1}.tanh())", "({0} + {1}.detach())",
    "torch.addcmul({0}, {0}, {1}, value=0.4)", "{0}.clamp(max=1 + {1}.square())", "({0} - {1}).square()",
)  # fmt: skip


class Drawing:
    """Draws expressions over some parameters."""

    def __init__(self, rng: random.Random, tables: Mapping[str, int], vectors: Mapping[str, int],
                 matrices: Mapping[str, tuple[int, int]]) -> None:  # fmt: skip
        self.rng = rng
        self.tables, self.vectors, self.matrices = tables, vectors, matrices

    def row(self, width: int, depth: int) -> Expr:
        """A row of numbers for each sample."""
        kind, rng = f"R{width}", self.rng
        sources = [
            Expr(kind, f"w.{name}[batch.items]") for name, size in self.tables.items() if size == width
        ]
        if depth <= 0 or rng.random() < 0.15:
            if sources:
                return rng.choice(sources)
            return Expr(kind, f"{{0}}.unsqueeze(-1).expand(*{{0}}.shape, {width})", (self.sample(0),))
        less = depth - 1
        ways: list[Callable[[], Expr]] = [
            lambda: Expr(kind, rng.choice(_ONE_TO_ONE), (self.row(width, less),)),
            lambda: Expr(kind, rng.choice(_TWO_TO_ONE), (self.row(width, less), self.row(width, less))),
            lambda: Expr(kind, rng.choice(_TWO_TO_ONE), (self.row(width, less), self.vector(width, less))),
            lambda: Expr(kind, "({0} * {1}.unsqueeze(-1))", (self.row(width, less), self.sample(less))),
            lambda: Expr(kind, "({0} + {1})", (self.row(width, less), self.vector(1, less))),
            lambda: Expr(kind, "torch.softmax({0}, -1)", (self.row(width, less),)),
            lambda: Expr(kind, "functional.log_softmax({0}, dim=-1)", (self.row(width, less),)),
            lambda: Expr(kind, "({0} - {0}.mean(-1, keepdim=True))", (self.row(width, less),)),
            lambda: Expr(kind, "({0} / (1 + {0}.square().sum(-1, keepdim=True)))", (self.row(width, less),)),
            lambda: Expr(kind, f"{{0}}[..., :{width}]", (self.row(width + 2, less),)),
            lambda: Expr(kind, f"{{0}}[..., 1:{width + 1}]", (self.row(width + 1, less),)),
        ]
        if width > 1:
            ways.append(
                lambda: Expr(kind, f"functional.layer_norm({{0}}, ({width},))", (self.row(width, less),))
            )
            ways.append(
                lambda: Expr(
                    kind, "torch.cat([{0}, {1}], -1)", (self.row(1, less), self.row(width - 1, less))
                )
            )
        if width == 2:
            ways.append(
                lambda: Expr(kind, "torch.stack([{0}, {1}], -1)", (self.sample(less), self.sample(less)))
            )
        for name, (into, out) in self.matrices.items():
            if out == width:
                ways += [lambda n=name, i=into: Expr(kind, f"({{0}} @ w.{n})", (self.row(i, less),))] * 3
        return rng.choice(ways)()

    def sample(self, depth: int) -> Expr:
        """A number for each sample."""
        rng, less = self.rng, depth - 1
        if depth <= 0:
            names = list(self.tables)
            text = rng.choice([f"w.{rng.choice(names)}[batch.items].sum(-1)", "batch.labels", "batch.labels",
                               "batch.occurrences()", "batch.distinct()"])  # fmt: skip
            return Expr("S", text)
        width = rng.choice([*self.tables.values(), *self.tables.values(), 1, 2])
        reduced = ("{0}.sum(-1)", "{0}.mean(-1)", "{0}.amax(-1)", "{0}.amin(-1)", "{0}.logsumexp(-1)",
                   "{0}.square().sum(-1)", "(1 + {0}.square().sum(-1)).sqrt()", "{0}[..., 0]", "{0}[..., -1]",
                   "{0}.tanh().prod(-1)", "{0}.abs().sum(-1)", "{0}.var(-1, unbiased=False)",
                   "({0} + 2).norm(dim=-1)")  # fmt: skip
        ways: list[Callable[[], Expr]] = [
            lambda: Expr("S", rng.choice(_ONE_TO_ONE), (self.sample(less),)),
            lambda: Expr("S", rng.choice(_TWO_TO_ONE), (self.sample(less), self.sample(less))),
            lambda: Expr("S", rng.choice(_TWO_TO_ONE), (self.sample(less), self.one(less))),
            lambda: Expr("S", rng.choice(reduced), (self.row(width, less),)),
            lambda: Expr("S", rng.choice(reduced), (self.row(width, less),)),
            lambda: Expr("S", "dot({0}, {1})", (self.row(width, less), self.vector(width, less))),
            lambda: Expr("S", "dot({0}, {1})", (self.row(width, less), self.row(width, less))),
            lambda: Expr(
                "S",
                "functional.cosine_similarity({0} + 2, {1} + 2, dim=-1)",
                (self.row(width, less), self.row(width, less)),
            ),
            lambda: Expr(
                "S", "({0} - batch.mean({1}).unsqueeze(-1))", (self.sample(less), self.sample(less))
            ),
        ]
        if hasattr(PlainBatch, "softmax"):
            ways.append(lambda: Expr("S", "batch.softmax({0})", (self.sample(less),)))
        return rng.choice(ways)()

    def vector(self, width: int, depth: int) -> Expr:
        """A vector of a client."""
        kind, rng, less = f"V{width}", self.rng, depth - 1
        sources = [Expr(kind, f"w.{name}") for name, size in self.vectors.items() if size == width]
        sources += [
            Expr(kind, f"(w.{name}.training_sum() / w.interactions)")
            for name, size in self.tables.items()
            if size == width
        ]
        if width == 1:
            sources += [Expr(kind, "(w.interactions / 8)"), Expr(kind, "w.held")]
        if depth <= 0 or rng.random() < 0.3:
            if sources:
                return rng.choice(sources)
            return Expr(kind, f"{{0}}.expand(*{{0}}.shape[:-1], {width})", (self.vector(1, 0),))
        ways: list[Callable[[], Expr]] = [
            lambda: Expr(kind, rng.choice(_ONE_TO_ONE), (self.vector(width, less),)),
            lambda: Expr(kind, rng.choice(_TWO_TO_ONE), (self.vector(width, less), self.vector(width, less))),
            lambda: Expr(kind, "torch.softmax({0}, -1)", (self.vector(width, less),)),
        ]
        if width == 1:
            inner = rng.choice([*self.vectors.values()])
            ways.append(lambda: Expr(kind, "{0}.sum(-1, keepdim=True)", (self.vector(inner, less),)))
        for name, (into, out) in self.matrices.items():
            if out == width:
                ways.append(lambda n=name, i=into: Expr(kind, f"({{0}} @ w.{n})", (self.vector(i, less),)))
        return rng.choice(ways)()

    def one(self, depth: int) -> Expr:
        """A number of a client that meets numbers of samples."""
        rng = self.rng
        if rng.random() < 0.3:
            return Expr(
                "O",
                rng.choice(["(batch.size / 4)", "(w.interactions.squeeze(-1) / 8)", "w.held.squeeze(-1)"]),
            )
        width = rng.choice(list(self.vectors.values()))
        text = rng.choice(["{0}.sum(-1)", "{0}.mean(-1)", "{0}.square().sum(-1)", "{0}.amax(-1)"])
        return Expr("O", text, (self.vector(width, depth - 1),))

    def client(self, depth: int) -> Expr:
        """A number of a client, as a loss is one."""
        rng, less = self.rng, depth - 1
        ways: list[Callable[[], Expr]] = [lambda: Expr("C", "batch.mean({0})", (self.sample(less),))] * 3
        if hasattr(PlainBatch, "sum"):
            ways.append(lambda: Expr("C", "(batch.sum({0}) / 8)", (self.sample(less),)))
            ways.append(lambda: Expr("C", "batch.logsumexp({0})", (self.sample(less),)))
        ways.append(lambda: Expr("C", "{0}.square().sum((-1, -2))", (self._any_vector(less),)))
        if self.matrices:
            ways.append(lambda: Expr("C", f"w.{rng.choice(list(self.matrices))}.square().sum((-1, -2))"))
        if depth > 1:
            ways.append(lambda: Expr("C", "({0} + {1})", (self.client(less), self.client(less))))
            ways.append(lambda: Expr("C", "torch.tanh({0})", (self.client(less),)))
            ways.append(
                lambda: Expr("C", "(({0} / (1 + {1}.square())))", (self.client(less), self.client(less)))
            )
        if rng.random() < 0.15:
            return Expr("C", rng.choice(("{0}.square().mean((-1, -2))", "{0}.tanh().abs().mean((-1, -2))",
                                         "(1 + {0}.square().sum((-1, -2))).sqrt()")), (self.whole(),))  # fmt: skip
        return rng.choice(ways)()

    def whole(self) -> Expr:
        """A whole table, or something of two of the same width."""
        name = self.rng.choice(list(self.tables))
        width = self.tables[name]
        others = [other for other, size in self.tables.items() if size == width and other != name]
        if others and self.rng.random() < 0.4:
            return Expr(f"W{width}", f"(w.{name}.whole() - w.{self.rng.choice(others)}.whole())")
        return Expr(f"W{width}", f"w.{name}.whole()")

    def unread(self, terms: list[Expr]) -> Iterator[Expr]:
        """Terms of most parameters that no other term reads: few programs are about what is not read."""
        text, rng = " ".join(map(str, terms)), self.rng
        for name, width in self.tables.items():
            if f"w.{name}[" not in text and rng.random() < 0.85:
                row = Expr(
                    f"R{width}", rng.choice(_ONE_TO_ONE), (Expr(f"R{width}", f"w.{name}[batch.items]"),)
                )
                yield Expr("C", "batch.mean({0}.sum(-1))", (row,))
        for name in (*self.vectors, *self.matrices):
            if f"w.{name}" not in text and rng.random() < 0.85:
                yield Expr("C", f"{rng.choice(_ONE_TO_ONE).format(f'w.{name}')}.sum((-1, -2))")

    def _any_vector(self, depth: int) -> Expr:
        return self.vector(self.rng.choice(list(self.vectors.values())), depth)


# Programs


@dataclass(frozen=True)
class Program:
    """A random method: the lines of its parameters, its losses as sums of terms, the lines of its round."""

    seed: int
    parameters: Mapping[str, str]
    score: Expr
    losses: tuple[tuple[Expr, ...], ...]
    round_: tuple[tuple[str, ...], ...]
    """Operations; each with lines of its own that may be left out, the first of which may not."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[int, ...] = (1, 4, 7)

    @property
    def source(self) -> str:
        """The text of a method file."""
        lines = [
            "# ruff: noqa",
            f'"""Random program {self.seed}."""',
            "",
            "import torch",
            "from torch.nn import functional",
            "",
            "from fedrec.federation.model import Initial, Method, Parameter, Step, dot, item_table, matrix, vector",
            "",
            f"ROWS = {self.rows}",
            f"SETTINGS = {dict(self.settings)}",
            "",
            "",
            f"class Random{self.seed}(Method):",
            f'    """Random program {self.seed}."""',
            "",
            "    def parameters(self):",
            "        return {",
            *(f'            "{name}": {text},' for name, text in self.parameters.items()),
            "        }",
            "",
            "    def score(self, w, items):",
            "        return dot(w.Q[items], w.p)",
            "",
            "    def loss_of(self, number, a, k):",
            *(line for number, terms in enumerate(self.losses) for line in self._loss(number, terms)),
            f"        return [{', '.join(f'loss_{number}' for number in range(len(self.losses)))}][number]",
            "",
            "    def local_round(self, client):",
            "        a, k = 1.5 / client.round_, 1 + client.round_ % 2",
            *(f"        {line}" for operation in self.round_ for line in operation),
            "",
        ]
        return "\n".join(lines)

    def _loss(self, number: int, terms: tuple[Expr, ...]) -> Iterator[str]:
        yield f"        def loss_{number}(w, batch):"
        yield f"            s = dot(w.Q[batch.items], w.p) + {self.score}"
        yield "            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction='none')"
        yield "            value = batch.mean(entropy)"
        yield from (f"            value = value + 0.1 * {term}" for term in terms)
        yield "            return value"
        yield ""

    def case(self) -> Case:
        """The case of this program: its file is imported, as that of any method."""
        checksum = hashlib.sha256(self.source.encode()).hexdigest()[:8]
        path = Path(_folder()) / f"random_{self.seed}_{checksum}.py"
        path.write_text(self.source, encoding="utf-8")
        return case_of(path)

    def smaller(self) -> Iterator["Program"]:
        """Programs with less in them, the largest steps first."""
        for place in range(len(self.round_)):
            if len(self.round_) > 1:
                yield replace(self, round_=self.round_[:place] + self.round_[place + 1 :])
        for number, terms in enumerate(self.losses):
            for place in range(len(terms)):
                yield self._with_terms(number, terms[:place] + terms[place + 1 :])
        for name in self.settings:
            yield replace(self, settings={key: each for key, each in self.settings.items() if key != name})
        if self.rows != (3,):
            yield replace(self, rows=(3,))
        yield from (replace(self, score=less) for less in self.score.smaller())
        for number, terms in enumerate(self.losses):
            for place, term in enumerate(terms):
                for less in term.smaller():
                    yield self._with_terms(number, (*terms[:place], less, *terms[place + 1 :]))
        unused = [
            name for name in self.parameters if f"w.{name}" not in self._text() and name not in ("Q", "p")
        ]
        for name in unused:
            if not any(f'"{name}"' in line for operation in self.round_ for line in operation):
                yield replace(
                    self, parameters={key: each for key, each in self.parameters.items() if key != name}
                )

    def _with_terms(self, number: int, terms: tuple[Expr, ...]) -> "Program":
        return replace(self, losses=(*self.losses[:number], terms, *self.losses[number + 1 :]))

    def _text(self) -> str:
        return " ".join(map(str, [self.score, *(term for terms in self.losses for term in terms)]))


@cache
def _folder() -> str:
    return tempfile.mkdtemp(prefix="random-programs-")


def case_of(path: Path) -> Case:
    """The case of a file: a method, the training interactions of made clients, and settings."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Whatever looks for the source of a class finds it by its module.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    (method,) = (each for name, each in vars(module).items() if name.startswith("Random"))
    return Case(
        path.stem, module.__doc__ or "", method, settings=module.SETTINGS, rows=module.ROWS, items=ITEMS
    )


def drawn(seed: int) -> Program:
    """The random program of a seed."""
    rng = random.Random(seed)
    d = rng.choice([1, 2, 3, 4, 5, 7, 9])
    tables, vectors, matrices = {"Q": d}, {"p": d}, {}
    places = {"Q": "shared", "p": "private"}
    for name in ("T", "U", "Y")[: rng.choice([0, 0, 1, 1, 2, 3])]:
        tables[name] = rng.choice([1, 1, d, d, 2, 3])
        places[name] = rng.choice(["shared", "private", "local", "scratch"])
    for name in ("g", "h", "x")[: rng.choice([0, 1, 2, 3])]:
        vectors[name] = rng.choice([1, 1, d, 2])
        places[name] = rng.choice(["shared", "private", "local", "personal"])
    for name in ("M", "N")[: rng.choice([0, 0, 1, 2])]:
        matrices[name] = (rng.choice([*tables.values()]), rng.choice([1, 2, 3, d]))
        places[name] = rng.choice(["shared", "private"])
    drawing = Drawing(rng, tables, vectors, matrices)
    score = drawing.sample(rng.randint(1, _DEPTH))
    losses = tuple(
        tuple(drawing.client(rng.randint(1, _DEPTH)) for _ in range(rng.choice([0, 1, 1, 2])))
        for _ in range(rng.choice([1, 1, 1, 2]))
    )
    losses = tuple((*terms, *drawing.unread([score, *terms])) for terms in losses)
    parameters = {
        name: f'item_table(self.items, {size}, "{places[name]}", {_initial(rng)})'
        for name, size in tables.items()
    }
    parameters |= {
        name: f'vector({size}, "{places[name]}", {_initial(rng)})' for name, size in vectors.items()
    }
    parameters |= {
        name: f'matrix({a}, {b}, "{places[name]}", {_initial(rng)})' for name, (a, b) in matrices.items()
    }
    return Program(
        seed,
        parameters,
        score,
        losses,
        _round(rng, places, tables, len(losses)),
        _settings(rng),
        rng.choice(_ROWS),
    )


def _initial(rng: random.Random) -> str:
    return rng.choice(
        [
            'Initial("normal", 0.7)',
            'Initial("normal", 0.3)',
            'Initial("uniform", 0.5)',
            'Initial("constant", 0.4)',
        ]
    )


def _round(
    rng: random.Random, places: Mapping[str, str], tables: Mapping[str, int], losses: int
) -> tuple[tuple[str, ...], ...]:
    """The operations of a round."""
    trainable = [name for name, place in places.items() if place != "scratch"]
    operations: list[tuple[str, ...]] = []
    for name, width in tables.items():
        others = [other for other, size in tables.items() if size == width and other != name]
        if places[name] == "scratch" or (places[name] in ("private", "local") and rng.random() < 0.25):
            if others:
                new = f"a * w.{rng.choice(others)}[items] + 0.5 * w.{name}[items].tanh()"
            else:
                new = f"0.5 * w.{name}[items]"
            operations.append((f'client.rewrite("{name}", lambda w, items: {new})',))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        steps = tuple(_step(rng, trainable, losses) for _ in range(rng.choice([1, 1, 2, 3])))
        how = f"epochs={rng.choice([1, 1, 2, 3])}, loss=self.loss_of({rng.randrange(losses)}, a, k)"
        if rng.random() < 0.15:
            how += f", early_stop={rng.choice([0.05, 0.3])}"
        if rng.random() < 0.15:
            how += f', samples="{rng.choice(["first", "second"])}"'
        operations.append((f"client.fit({', '.join(steps)}, {how})",))
        if rng.random() < 0.2:
            rng.shuffle(operations)
    for name, place in places.items():
        if place in ("shared", "personal") and rng.random() < 0.85:
            operations.append((f'client.upload("{name}")',))
        elif place == "local" and rng.random() < 0.6:
            same = [
                other
                for other in places
                if tables.get(other) == tables.get(name) and places[other] == "shared"
            ]
            same = [other for other in same if other in tables] if name in tables else []
            if same:
                operations.append((f'client.upload("{name}", into="{rng.choice(same)}")',))
    return tuple(_each_upload_once(_each_kept_once(operations)))


def _each_upload_once(operations: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The server accepts one upload into each of its parameters."""
    seen: set[str] = set()
    for operation in operations:
        if operation[0].startswith("client.upload"):
            into = operation[0].split('"')[-2]
            if into in seen:
                continue
            seen.add(into)
        yield operation


def _step(rng: random.Random, trainable: list[str], losses: int) -> str:
    names = rng.sample(trainable, rng.randint(1, len(trainable)))
    if "Q" not in names and "p" not in names:
        # Every loss reads both of them.
        names.append(rng.choice("Qp"))
    optimiser = rng.choice(["adam", "sgd"])
    rates = ", ".join(f'"{name}": {rng.choice([0.02, 0.05, 0.1])}' for name in names)
    text = f'Step({{{rates}}}, "{optimiser}"'
    if rng.random() < 0.3:
        decayed = rng.choice(names)
        text += f', weight_decay={{"{decayed}": {rng.choice([0.01, 0.2])}}}'
    if rng.random() < 0.1 and optimiser == "adam":
        text += ", keep_state=True"
    if rng.random() < 0.1:
        text += f", loss=self.loss_of({rng.randrange(losses)}, a, k)"
    return text + ")"


def _each_kept_once(operations: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Moments of a parameter can be kept by one step alone."""
    kept = 0
    changed = []
    for (line,) in operations:
        pieces = line.split(", keep_state=True")
        kept += len(pieces) - 1
        changed.append((", keep_state=True".join(pieces) if kept <= 1 else "".join(pieces),))
    return changed


def _settings(rng: random.Random) -> dict[str, Any]:
    """What differs from the usual settings."""
    choices: dict[str, list[Any]] = {
        "batch_size": [1, 2, 3, 5, 8, 1000],
        "negatives": [1, 2, 3],
        "participation": [1.0, 1.0, 1.0, 0.6],
        "aggregated": [1.0, 1.0, 1.0, 0.5],
        "weighting": ["size", "equal"],
    }
    return {name: rng.choice(values) for name, values in choices.items()}


# Trying them


def shrunk(program: Program, fails: Callable[[Program], bool], tries: int = 200) -> Program:
    """The smallest program found that still fails, by leaving things out one after another."""
    left = tries
    going = True
    while going and left > 0:
        going = False
        for smaller in program.smaller():
            left -= 1
            if left <= 0:
                break
            if fails(smaller):
                program, going = smaller, True
                break
    return program


def disagrees(outcome: Outcome) -> bool:
    """Whether an engine does what it must not: other numbers, an error, text that the C compiler does not take, or a
    refusal, since programs keep to the rules."""
    return outcome.kind not in (EQUAL, UNSTEADY) or "error: " in outcome.by


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether two programs fail alike: by other numbers, or by the same error."""
    if not disagrees(one) or one.kind != other.kind:
        return False
    return one.kind in (EQUAL, UNSTEADY, WRONG) or _message(one) == _message(other)


def _message(outcome: Outcome) -> str:
    """What an outcome says, but for the file and the line."""
    return outcome.detail.rpartition("py:")[2].partition("): ")[2][:60] or outcome.detail[:40]


def tried(program: Program, engine: str, device: str = "cpu") -> Outcome:
    """What an engine makes of a random program; one that the loop refuses must be refused alike."""
    return outcome_of(program.case(), engine, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--engine", nargs="+", default=["fused", "batched"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", action="store_true", help="print the programs")
    parser.add_argument(
        "--shrink", type=int, default=150, help="how many smaller programs are tried of one that fails"
    )
    parser.add_argument("--but", help="a regular expression: failures whose message matches are only counted")
    asked = parser.parse_args()
    os.environ.setdefault("FEDREC_KERNEL_FLAGS", "-O0")
    counts, reasons, failed = Counter[tuple[str, str]](), Counter[str](), 0
    for seed in range(asked.first_seed, asked.first_seed + asked.count):
        program = drawn(seed)
        if asked.show:
            print(program.source)
        for engine in asked.engine:
            outcome = tried(program, engine, asked.device)
            counts[engine, outcome.kind] += 1
            if engine not in ("loop", "batched"):
                reasons[outcome.by] += 1
            if asked.show:
                print(outcome, flush=True)
            if disagrees(outcome) and not (asked.but and re.search(asked.but, outcome.detail)):
                failed += 1
                print(f"seed {seed}: {outcome}", flush=True)
                small = shrunk(
                    program,
                    lambda less, first=outcome: alike(tried(less, first.engine, asked.device), first),
                    asked.shrink,
                )
                print(small.source, tried(small, engine, asked.device), sep="\n", flush=True)
    for engine in asked.engine:
        print(engine, {kind: counts[engine, kind] for kind in OUTCOMES})
    print("\n".join(f"{count:5} {reason}" for reason, count in reasons.most_common(25)))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
