"""The paper a method comes from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Citation:
    """A reference: `authors` as they are cited, `venue` empty for a preprint."""

    authors: str
    title: str
    venue: str
    year: int

    def __str__(self) -> str:
        published = f"{self.venue} {self.year}" if self.venue else f"{self.year}"
        return f"{self.authors}: {self.title}, {published}."
