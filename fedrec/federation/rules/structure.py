"""The rules for a method's parameters and for the programs of its clients."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn, get_args

from fedrec.errors import FederationError, did_you_mean
from fedrec.federation.model.client import Fit, Half, Operation, OptimiserName, Program, Rewrite, Step, Upload
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import Values

_ON_SERVER, _NEVER_SENT = ("shared", "server", "personal"), ("private", "given", "server")
_CLIENT_VALUES = ("interactions", "held", "own", "history")
"""Values other than parameters that clients see."""


def check_parameters(method: Method) -> None:
    """Raise `FederationError` if a parameter's name has another meaning, or its `start` is not shared."""
    name_of = type(method).__name__
    in_kernels: dict[str, str] = {}
    for name in method.parameters():
        if name in _CLIENT_VALUES or hasattr(Values, name):
            raise FederationError(
                f"{name_of} has a parameter '{name}', but w.{name} has another meaning. Rename the parameter."
            )
        plain = "".join(letter if letter.isalnum() else "_" for letter in name)
        if plain in in_kernels:
            raise FederationError(
                f"{name_of} has parameters '{in_kernels[plain]}' and '{name}', which have the same name in "
                "compiled code. Rename one of them."
            )
        in_kernels[plain] = name
    shared = [name for name, part in method.parameters().items() if part.location == "shared"]
    for name, part in method.parameters().items():
        if part.start is not None and part.start not in shared:
            raise FederationError(
                f"{name_of} starts '{name}' as a copy of '{part.start}', which is not a shared parameter."
                f"{did_you_mean(part.start, shared)} Shared parameters: {', '.join(shared) or 'none'}."
            )


def check_given(method: Method) -> None:
    """Raise `FederationError` if a given table has no file."""
    for name, part in method.parameters().items():
        if part.location == "given" and part.initial.values is None:
            raise FederationError(
                f"{type(method).__name__} reads '{name}', numbers of items from a file, but no setting names "
                "a file. Name it: --set SETTING=FILE (`fedrec methods NAME` lists settings of type path)."
            )


def check_derived(method: Method, names: Iterable[str]) -> None:
    """Raise `FederationError` if the name of a derived number is already in use."""
    taken = sorted({*method.parameters(), *_CLIENT_VALUES}.intersection(names))
    if taken:
        raise FederationError(
            f"{type(method).__name__}.derived gives '{taken[0]}', the name of another value that clients "
            "see. Rename the derived number."
        )


def check_program(program: Program, method: Method) -> None:
    """Raise `FederationError` if clients cannot execute an operation of a program."""
    checker = _ProgramChecker(type(method).__name__, method.parameters())
    for operation in program:
        checker.check(operation)


class _ProgramChecker:
    """Checks the operations that a method requests of its clients."""

    def __init__(self, name: str, parameters: Mapping[str, Parameter]) -> None:
        self._name = name
        self._parameters = parameters

    def check(self, operation: Operation) -> None:
        """Check one operation."""
        if isinstance(operation, Fit):
            self._check_fit(operation)
        elif isinstance(operation, Rewrite):
            self._check_known(operation.name, "rewrites")
        else:
            self._check_upload(operation)

    def _check_known(self, name: str, does: str) -> None:
        known = self._parameters
        if name not in known:
            self._refuse(
                f"{does} '{name}', which is none of its parameters.{did_you_mean(name, known)} It has: "
                f"{', '.join(known)}"
            )

    def _check_fit(self, fit: Fit) -> None:
        if not fit.steps:
            self._refuse("fits without a step. Give it one: self.fit(client, self.step(client, rates))")
        if fit.epochs < 0:
            self._refuse(f"fits for {fit.epochs} epochs. There are 0 or more")
        if fit.samples is not None and fit.samples not in get_args(Half):
            self._refuse(f"fits on the samples '{fit.samples}'. There are: {', '.join(get_args(Half))}")
        trained = {name for step in fit.steps for name in step.rates}
        for step in fit.steps:
            self._check_step(step, trained)

    def _check_step(self, step: Step, trained: set[str]) -> None:
        known = get_args(OptimiserName)
        if step.optimiser not in known:
            self._refuse(
                f"trains by the optimiser '{step.optimiser}'.{did_you_mean(step.optimiser, known)} There "
                f"are: {', '.join(known)}"
            )
        if not step.rates:
            self._refuse("has a step that trains nothing. Name what it trains: Step({'Q': rate}, ...)")
        for name in step.rates:
            self._check_known(name, "trains")
            if self._parameters[name].location == "server":
                self._refuse(f"trains '{name}', which is on the server: clients do not see it")
            if self._parameters[name].location == "given":
                self._refuse(
                    f"trains '{name}', which is given and stays as it is. Train another parameter, such as a "
                    "matrix that its rows are multiplied by"
                )
        for name, does in _other_names(step):
            self._check_known(name, does)
            if name not in trained:
                self._refuse(
                    f"{does} '{name}', which its fit does not train. It trains: {', '.join(sorted(trained))}"
                )

    def _check_upload(self, upload: Upload) -> None:
        self._check_known(upload.name, "uploads")
        sent, goal = self._parameters[upload.name], self._parameters.get(upload.into)
        may = goal is not None and goal.location in _ON_SERVER and sent.location not in _NEVER_SENT
        # `Server.accept` refuses an upload that may not be sent at all.
        if goal is not None and may and upload.transform is None and sent.shape != goal.shape:
            self._refuse(
                f"uploads '{upload.name}' into '{upload.into}', which has another shape: {sent.shape} and "
                f"{goal.shape}"
            )
        if upload.transform is not None and not sent.table:
            self._refuse(f"uploads a function of '{upload.name}', which is no table")

    def _refuse(self, what: str) -> NoReturn:
        raise FederationError(f"{self._name} {what}.")


def _other_names(step: Step) -> Iterator[tuple[str, str]]:
    """The parameters that a step names outside its rates, with their use."""
    yield from ((name, "decays the weights of") for name in step.weight_decay)
    yield from ((name, "guards the gradient of") for name in step.gradient_noise)
