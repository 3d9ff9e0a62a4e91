"""Options that several commands have, and the examples in their help."""

import shlex
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator

import pytest

from fedrec.cli import commands
from fedrec.cli.options import check_paper
from fedrec.cli.snakemake_arguments import read_words
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT


def test_a_run_of_no_paper_may_be_requested():
    """Trials of methods of no paper are listed so."""
    methods = ROOT / "config/methods.yaml"
    check_paper(Namespace(paper="own", methods=methods, found=None))
    with pytest.raises(ConfigurationError, match="unknown paper 'owm'"):
        check_paper(Namespace(paper="owm", methods=methods, found=None))


def parsers_below(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parsers of all commands and subcommands."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for part in dict.fromkeys(action.choices.values()):
                yield part
                yield from parsers_below(part)


def example_words(parser: ArgumentParser) -> list[str]:
    """The words of the example at the end of a command's help, without a redirection."""
    epilog = parser.epilog or ""
    label, _, example = epilog.partition(": ")
    assert (label, epilog.count("\n")) == ("example", 0), parser.prog
    assert parser.format_help().endswith(f"\n{epilog}\n") or epilog in " ".join(parser.format_help().split())
    program, *words = shlex.split(example.partition(" > ")[0])
    assert program == "fedrec", parser.prog
    return words


def test_the_help_of_every_command_ends_with_an_example_that_it_parses():
    parsers = list(parsers_below(commands._parser()))
    assert len(parsers) > 25
    for parser in parsers:
        words = example_words(parser)
        parsed, others = commands._parser().parse_known_args(words)
        if parsed.takes_others:
            assert read_words(others)[0].targets, parser.prog
        else:
            assert others == [], parser.prog
        # A group such as `fedrec new` shows the example of one of its commands.
        has_commands = any(isinstance(action, _SubParsersAction) for action in parser._actions)
        names = parser.prog.split()[1:]
        assert words[: len(names)] == names, parser.prog
        assert has_commands or parsed.command.__doc__ == parser.description or parsed.takes_others
