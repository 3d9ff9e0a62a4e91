import io

from fedrec import progress
from fedrec.progress import ByteProgress, RoundProgress, RoundsDone, TaskProgress, report_rounds


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


def test_tasks_say_how_many_are_done_and_about_how_long_the_rest_takes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    tasks = TaskProgress([(30.0, 1), (10.0, 1), (20.0, 1)], stream)
    tasks.show()
    for seconds, failed in ((30.0, False), (10.0, True), (20.0, False)):
        now[0] += 2 * seconds
        tasks.update(seconds, failed=failed)
        tasks.show()
    tasks.close()
    assert tasks.left == 0
    assert stream.getvalue().splitlines() == [
        "1 of 3 runs, about 1 min 0 s left",
        "2 of 3 runs, 1 failed, about 53 s left",
        "3 of 3 runs, 1 failed, 2 min 0 s",
    ]


def test_how_long_the_rest_takes_is_told_by_what_was_done_and_not_by_what_failed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tasks = TaskProgress([(5.0, 1), (10.0, 1), (20.0, 1)], io.StringIO())
    tasks.update(5.0, failed=True)
    assert tasks.seconds_left is None
    now[0] = 30.0
    tasks.update(10.0, failed=False)
    assert tasks.seconds_left == 60


def test_tasks_say_how_many_are_done_at_once_where_these_are_fewer_than_was_asked_for(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    stream = io.StringIO()
    tasks = TaskProgress([(1.0, 1), (1.0, 1), (1.0, 1)], stream)
    tasks.at_once = 2
    tasks.update(1.0, failed=True)
    tasks.at_once = None
    tasks.update(1.0, failed=True)
    assert stream.getvalue() == "1 of 3 runs, 1 failed, 2 at the same time\n2 of 3 runs, 2 failed\n"


def test_tasks_on_a_terminal_are_a_bar():
    stream = Terminal()
    tasks = TaskProgress([(1.0, 1)], stream)
    tasks.update(1.0, failed=False)
    tasks.close()
    assert "1 of 1 runs" in stream.getvalue()


def test_tasks_that_were_done_before_do_not_say_how_long_the_others_take():
    stream = Terminal()
    tasks = TaskProgress([(0.0, 1), (5.0, 1)], stream)
    tasks.update(0.0, failed=False)
    assert "left" not in stream.getvalue()
    tasks.close()


def test_the_seconds_of_a_round_count_its_evaluation(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    rounds = RoundProgress("fedmf", 2, 0, stream)
    for now[0] in (5.0, 5.75):
        rounds.update(0.1, 0.2, 0.25)
    assert stream.getvalue().splitlines()[1] == (
        "fedmf: round 2 of 2, loss 0.1000, validation HR@10 0.2000, 0.750 s per round, of which 0.250 s "
        "training"
    )


def test_a_method_without_gradient_steps_has_no_loss_in_its_progress():
    stream = io.StringIO()
    RoundProgress("fedease", 1, 0, stream).update(float("nan"), 0.2, 0.25)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("fedease: round 1 of 1, validation HR@10 0.2000, ")


def test_rounds_are_told_to_who_listens_at_most_once_a_second(monkeypatch):
    now, told = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with report_rounds(told.append):
        rounds = RoundProgress("fedmf", 100, 10, io.StringIO())
        for seconds in (0.5, 0.5, 0.5, 2.5):
            now[0] += seconds
            rounds.update(0.1, 0.2, seconds)
    rounds.update(0.1, 0.2, 9.0)
    assert told == [RoundsDone(10, 100, None), RoundsDone(12, 100, 0.5), RoundsDone(14, 100, 1.0)]
