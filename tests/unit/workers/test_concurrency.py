"""How many work at once, where not all fit into memory."""

from fedrec.workers.concurrency import ConcurrencyLimit


def filled(size):
    """A room in which everybody is at work."""
    room = ConcurrencyLimit(size)
    for member in range(size):
        assert room.admits(member)
        room.begin(member)
    return room


def full_for(room, member):
    room.did_not_fit(member, f"task {member}")
    room.leave(member)


def test_as_many_may_work_as_stay_when_others_did_not_fit():
    room = filled(20)
    for number, member in enumerate((3, 5, 8)):
        full_for(room, member)
        assert room.at_once == 19 - number
    assert not room.admits(3)
    assert room.admits(0), "who is in goes on"
    room.leave(0)
    assert room.admits(3)
    assert room.is_smaller


def test_of_a_crew_that_fails_together_one_half_works_at_once():
    room = filled(20)
    for member in range(20):
        room.did_not_fit(member, f"task {member}")
    assert room.at_once == 10
    assert not room.admits(0), "as long as nobody has left"


def test_there_is_always_room_for_one():
    room = filled(2)
    full_for(room, 0)
    full_for(room, 1)
    assert room.at_once == 1
    assert room.admits(0)


def test_who_was_alone_differs_from_who_had_others_beside_it_for_a_while():
    room = ConcurrencyLimit(2)
    room.begin(0)
    assert room.most_at_once(0) == 1
    room.begin(1)
    room.leave(1)
    assert room.most_at_once(0) == 2
    room.begin(0)
    assert room.most_at_once(0) == 1


def test_it_grows_by_one_for_each_that_fits_once_those_that_came_back_are_over():
    room = filled(4)
    full_for(room, 0)
    full_for(room, 1)
    assert room.at_once == 2
    room.is_over("another", failed=False)
    room.is_over("task 0", failed=False)
    assert room.at_once == 2, "one is left that came back"
    room.is_over("task 1", failed=True)
    assert room.at_once == 2, "what failed tells nothing of memory"
    room.is_over("another", failed=False)
    assert room.at_once == 3
    room.is_over("another", failed=False)
    room.is_over("another", failed=False)
    assert room.at_once == 4, "no more than was asked for"
    assert not room.is_smaller
