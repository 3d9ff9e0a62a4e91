import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json
from fedrec.files.parquet import content_hash, read_table, write_table


def test_content_not_storage_is_hashed():
    plain = pa.table({"a": pa.array(["x", None, "y"])})
    large = pa.table({"a": pa.array(["x", None, "y"], pa.large_string())})
    encoded = pa.table({"a": pa.array(["x", None, "y"]).dictionary_encode()})
    chunked = pa.table({"a": pa.chunked_array([["x"], [None, "y"]])})
    assert len({content_hash(table) for table in (plain, large, encoded, chunked)}) == 1


def test_text_is_hashed_as_one_list_however_many_values_are_spelt_at_once(monkeypatch):
    words = ["x", None, 'a "quote"', "ä", "x", "y", "y"]
    tables = [pa.table({"a": values}) for values in (pa.array(words), pa.array(words).dictionary_encode())]
    expected = hashlib.sha256(b'["a","string",7]' + canonical_json(words).encode()).hexdigest()
    for at_once in (1, 2, 7, 1 << 18):
        monkeypatch.setattr("fedrec.files.parquet._SPELLED_AT_ONCE", at_once)
        assert [content_hash(table) for table in tables] == [expected, expected]


def test_the_same_numbers_are_hashed_alike_in_a_dictionary_or_not():
    numbers = pa.array([5, 7, 5])
    assert content_hash(pa.table({"a": numbers})) == content_hash(
        pa.table({"a": numbers.dictionary_encode()})
    )


@pytest.mark.parametrize(
    "other", [{"a": [1, 3]}, {"b": [1, 2]}, {"a": [1.0, 2.0]}, {"a": [1, 2], "c": [0, 0]}]
)
def test_every_difference_shows(other):
    assert content_hash(pa.table({"a": [1, 2]})) != content_hash(pa.table(other))


def test_about_travels_with_the_table(tmp_path):
    content = write_table(tmp_path / "t.parquet", pa.table({"a": [1, 2]}), {"seed": 3})
    table, about = read_table(tmp_path / "t.parquet")
    assert table["a"].to_pylist() == [1, 2]
    assert about == {"seed": 3, "content": content}


def test_strange_and_tampered_files_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StorageError, match=r"fedrec did not write it\."):
        read_table(path)
    write_table(path, pa.table({"a": [1]}), {})
    metadata = pq.read_schema(path).metadata
    pq.write_table(pa.table({"a": [2]}).replace_schema_metadata(metadata), path)
    with pytest.raises(StorageError, match="its content does not match its checksum"):
        read_table(path)


def test_what_a_file_says_of_itself_is_guarded_like_its_rows(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(path, pa.table({"a": [1]}), {"seed": 3})
    stored = pq.read_schema(path).metadata[b"fedrec"]
    for changed in (stored.replace(b'"seed":3', b'"seed":4'), b"{", b"\xff", b"[]", b'{"content":"x"}'):
        pq.write_table(pa.table({"a": [1]}).replace_schema_metadata({b"fedrec": changed}), path)
        with pytest.raises(
            StorageError, match=r"t.parquet: is damaged: .*\. Delete it and type the command again"
        ):
            read_table(path)


def test_a_whole_file_of_something_else_is_noticed_and_the_caller_says_how_to_mend_it(tmp_path):
    path = tmp_path / "t.parquet"
    content = write_table(path, pa.table({"a": [1]}), {})
    assert read_table(path, content=content)[0]["a"].to_pylist() == [1]
    with pytest.raises(StorageError, match=r"is another file than the one written here\. Do this"):
        read_table(path, content="0" * 64, rebuild="Do this.")
    with pytest.raises(StorageError, match=r"none.parquet: no such file. Do that"):
        read_table(tmp_path / "none.parquet", rebuild="Do that.")


def test_a_folder_with_an_equals_sign_is_no_column(tmp_path):
    path = tmp_path / "d=8/t.parquet"
    write_table(path, pa.table({"a": [1]}), {})
    assert read_table(path)[0].column_names == ["a"]


def test_another_file_of_ours_is_reported_as_such(tmp_path):
    write_table(tmp_path / "a.parquet", pa.table({"user": [1]}), {"dataset": "made"})
    with pytest.raises(StorageError, match="another file of fedrec, without item"):
        read_table(tmp_path / "a.parquet", columns=("user", "item"))
    with pytest.raises(StorageError, match="another file of fedrec, without timed"):
        read_table(tmp_path / "a.parquet", says=("dataset", "timed"))


def test_bytes_are_hashed_by_what_they_are_and_where_they_end():
    whole = pa.table({"a": pa.array([b"ab", b"", b"c"], pa.binary())})
    part = pa.table({"a": pa.array([b"x", b"ab", b"", b"c"], pa.binary()).slice(1)})
    others = ([b"a", b"b", b"c"], [b"ab", b"c", b""], [b"ab", b"", b"d"])
    assert content_hash(whole) == content_hash(part)
    assert content_hash(whole) not in {
        content_hash(pa.table({"a": pa.array(other, pa.binary())})) for other in others
    }
