"""Which commands a worker does in the place of their own process."""

import pytest

from fedrec.cli import main as entry


@pytest.mark.parametrize("command", ["prepare", "split", "describe", "train", "build"])
def test_a_command_with_slow_imports_is_handed_over(monkeypatch, command):
    given = []
    monkeypatch.setattr(entry, "run_on_server", lambda words: given.append(list(words)) or 7)
    assert entry.main([command, "--some", "words"]) == 7
    assert given == [[command, "--some", "words"]]


def test_others_are_done_at_once(monkeypatch, capsys):
    monkeypatch.setattr(entry, "run_on_server", lambda _: pytest.fail("it was handed over"))
    with pytest.raises(SystemExit):
        entry.main(["--version"])
    assert capsys.readouterr().out.startswith("fedrec ")
