"""Tests that errors can be sent from one process to another."""

import copy
import pickle

import pytest

from politely_client import (
    Unavailable,
    BadCall,
    LeaseLost,
    LockLost,
    PolitelyError,
    Refused,
    TimedOut,
    TooLate,
)

ERRORS = [
    PolitelyError("any"),
    Refused("parked", "403 three times", 60.0),
    Refused("full", "no room"),
    TimedOut("hold, Retry-After", 2.5, 3),
    Unavailable("http://a:7077: ConnectError: refused"),
    TooLate("a.example: late"),
    LeaseLost("a.example: lost"),
    LockLost("a.example: the lock has ended"),
    BadCall("no host", "url", 422),
]


def kinds(kind):
    return {kind}.union(*map(kinds, kind.__subclasses__()))


def test_every_error_is_listed():
    assert {type(error) for error in ERRORS} == kinds(PolitelyError)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling(error, protocol):
    """The default pickling cannot restore `Refused`, and repeats the first words of `TimedOut` and
    `Unavailable`.
    """
    for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(again) is type(error) and str(again) == str(error)
        assert (again.args, vars(again)) == (error.args, vars(error))
