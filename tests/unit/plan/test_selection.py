"""Which of the runs that there are stand side by side in a table."""

from fedrec.plan.runs import RunId
from fedrec.plan.selection import with_majority_seeds, with_seeds_of_all


def line(method, *seeds, dataset="ml-100k", protocol="clean"):
    return [RunId("fedem", dataset, protocol, method, seed) for seed in seeds]


def test_lines_have_the_seeds_that_most_of_them_have():
    variants = [*line("fedem[merge=sm]", 0), *line("fedem[merge=dm]", 0)]
    shown, others = with_majority_seeds([*line("fedem", 0, 1, 2), *variants])
    assert shown == [*line("fedem", 0), *variants]
    assert others == []


def test_a_line_that_lacks_some_has_those_it_has_and_is_reported():
    whole = [*line("mf", 0, 1, 2), *line("ncf", 0, 1, 2)]
    shown, others = with_majority_seeds([*whole, *line("fedmf", 0, 3), *line("fedncf", 5)])
    assert shown == [*whole, *line("fedmf", 0), *line("fedncf", 5)]
    assert sorted(others) == [line("fedmf", 0), line("fedncf", 5)]


def test_of_equally_many_lines_those_with_fewer_seeds_decide():
    shown, others = with_majority_seeds([*line("fedmf", 0, 1), *line("fedmf[ldp=0.5]", 0)])
    assert (shown, others) == ([*line("fedmf", 0), *line("fedmf[ldp=0.5]", 0)], [])


def test_every_split_is_taken_by_itself():
    runs = [
        *line("mf", 0, 1),
        *line("mf", 0, protocol="published-fedem"),
        *line("mf", 2, dataset="filmtrust"),
    ]
    assert with_majority_seeds(runs) == (runs, [])


def test_lines_that_are_compared_user_by_user_have_the_seeds_of_all():
    whole = [*line("mf", 0, 1, 2), *line("ncf", 0, 1, 2)]
    shown, others = with_seeds_of_all([*whole, *line("fedmf", 0, 1), *line("mf", 3, dataset="filmtrust")])
    pairs = [*line("mf", 0, 1), *line("ncf", 0, 1), *line("fedmf", 0, 1)]
    assert (shown, others) == ([*pairs, *line("mf", 3, dataset="filmtrust")], [])


def test_where_no_seed_is_of_all_most_decide():
    whole = [*line("mf", 0, 1), *line("ncf", 0, 1)]
    assert with_seeds_of_all([*whole, *line("fedmf", 5)]) == ([*whole, *line("fedmf", 5)], [line("fedmf", 5)])
