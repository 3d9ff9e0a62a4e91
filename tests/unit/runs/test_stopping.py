"""Signals that ask a training to stop."""

import signal

import pytest

from fedrec.runs.stopping import StopRequest


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def request_at(now):
    request = StopRequest(clock=lambda: now[0])
    request.rounds_are_quick = True
    return request


def test_a_signal_that_comes_by_two_ways_is_one_request(request_at, now):
    """A scheduler signals the worker, and the process that waits for it, which passes its signal on."""
    request_at.receive(signal.SIGTERM, None)
    now[0] += 1.5
    request_at.receive(signal.SIGTERM, None)

    assert request_at.signal == signal.SIGTERM


def test_a_second_request_stops_at_once(request_at, now):
    request_at.receive(signal.SIGTERM, None)
    now[0] += 2.5
    with pytest.raises(KeyboardInterrupt):
        request_at.receive(signal.SIGINT, None)
    assert request_at.status == 130


def test_a_round_that_takes_long_is_not_waited_for(request_at):
    request_at.rounds_are_quick = False
    with pytest.raises(KeyboardInterrupt):
        request_at.receive(signal.SIGTERM, None)
