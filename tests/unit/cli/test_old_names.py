"""Old names of commands and options."""

import argparse
import re

import pytest

from fedrec import __version__
from fedrec.cli import commands
from fedrec.cli.main import main
from fedrec.cli.old_names import REMOVED_IN, with_new_names


@pytest.mark.parametrize(
    ("old", "new", "warned"),
    [
        ("papers pfedclr", "artefacts pfedclr", [("command papers", "artefacts")]),
        (
            "reference keep a_fig1",
            "reference freeze a_fig1",
            [("command reference keep", "reference freeze")],
        ),
        (
            "work --without-model runs.jsonl",
            "train-list --no-model runs.jsonl",
            [("command work", "train-list"), ("--without-model", "--no-model")],
        ),
        (
            "train --also=only-ties=work --diverged kept",
            "train --also-protocol=only-ties=work --on-divergence kept",
            [("--also", "--also-protocol"), ("--diverged", "--on-divergence")],
        ),
        ("plan --finished all", "plan --include-finished all", [("--finished", "--include-finished")]),
        ("adopt --finished tune", "adopt --skip-unfinished tune", [("--finished", "--skip-unfinished")]),
        ("reference plan --gaps", "reference plan --missing-only", [("--gaps", "--missing-only")]),
        ("tune --leaking", "tune --allow-leak", [("--leaking", "--allow-leak")]),
        # Options of Snakemake, names in other places, and new names stay as they are.
        ("run --also papers", "run --also papers", []),
        ("build work", "build work", []),
        ("train --also-protocol=a=b", "train --also-protocol=a=b", []),
        ("", "", []),
    ],
)
def test_an_old_name_is_replaced_with_a_warning(old, new, warned, capsys):
    assert with_new_names(old.split()) == new.split()
    lines = [f"fedrec: {a} is now {b}; the old name works until {REMOVED_IN}." for a, b in warned]
    assert capsys.readouterr().err.splitlines() == lines


def test_an_old_command_does_what_the_new_one_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["papers", "nothing"]) == main(["artefacts", "nothing"]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "fedrec: command papers is now artefacts; the old name works until 0.2."
    assert len(others) == 2
    assert others[0] == others[1]


def test_old_names_end_with_their_version():
    """Then `fedrec/cli/old_names.py` is deleted, and this file."""
    numbers = [tuple(map(int, version.split(".")[:2])) for version in (__version__, REMOVED_IN)]
    assert numbers[0] < numbers[1]


def parsers(parser, name="fedrec"):
    """Every command with its parser."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, part in action.choices.items():
                yield from parsers(part, f"{name} {word}")


COMMANDS = dict(parsers(commands._parser()))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_an_example_and_explains_every_argument(name):
    parser = COMMANDS[name]
    assert re.fullmatch(f"example: {name} ?.*|example: fedrec run .*", parser.epilog)
    # It is one that the command takes.
    commands._parser().parse_known_args(re.sub(" >.*", "", parser.epilog).split()[2:])
    arguments = [one for one in parser._actions if not isinstance(one, argparse._SubParsersAction)]
    assert [one.dest for one in arguments if not one.help] == []
    assert not {"papers", "work", "keep"} & set(name.split())
    sentence = parser.description.partition(". ")[0].split()
    assert sentence[0][0].isupper()
    assert len(sentence) <= 25


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["trian"], "unknown command 'trian'. Did you mean 'train'? `fedrec --help` lists the commands."),
        (["new", "datset"], "unknown command 'datset'. Did you mean 'dataset'?"),
        (["check", "--confgfile=x"], "unrecognized arguments: --confgfile=x. Did you mean '--configfile'?"),
        (["check", "--zzzz"], "unrecognized arguments: --zzzz.\n"),
        (
            ["kernel", "fedmf", "--device", "cdua"],
            "invalid choice: 'cdua' (choose from 'cpu', 'cuda'). Did you",
        ),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(words, answer, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert answer in capsys.readouterr().err


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"fedrec {__version__}\n")
