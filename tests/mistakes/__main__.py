"""Print every mistake and its answer as a table: `python -m tests.mistakes`."""

import tempfile
from pathlib import Path

from tests.mistakes.made import Folder, mistakes


def main() -> None:
    """Make every mistake, one after another, and print what is answered."""
    with tempfile.TemporaryDirectory() as folder:
        made = Folder(Path(folder))
        chapter = ""
        for mistake in mistakes():
            if mistake.chapter != chapter:
                chapter = mistake.chapter
                print(f"\n## {chapter}\n\n| mistake | answer |\n| --- | --- |")
            _, answer = mistake.answer(made.restored())
            print(f"| {mistake.what} | {answer.replace(chr(10), '<br>').replace('|', chr(92) + '|')} |")


if __name__ == "__main__":
    main()
