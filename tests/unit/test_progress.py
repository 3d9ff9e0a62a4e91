import io

from fedrec import progress
from fedrec.progress import ByteProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_gets_plain_lines_now_and_then(monkeypatch):
    clock = iter([0.0, 1.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    bar = ByteProgress("file.zip", stream)
    bar.total = 4_000_000
    bar.update(1_000_000)
    bar.update(1_000_000)
    bar.update(1_000_000)
    bar.close()
    assert stream.getvalue() == "file.zip: 2.0 of 4.0 MB\n"


def test_a_terminal_gets_a_bar():
    stream = Terminal()
    bar = ByteProgress("file.zip", stream)
    bar.total = 1000
    bar.update(500)
    bar.reset()
    bar.update(1000)
    bar.close()
    assert "file.zip: 100%" in stream.getvalue()
