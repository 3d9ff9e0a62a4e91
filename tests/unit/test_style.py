"""The style guide of CONTRIBUTING.md: length of sentences, their first words, and expressions to avoid."""

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrec.cli import commands
from tests.conftest import ROOT

MOST_WORDS = 25
"""Of a sentence. A code span counts as one word."""
AVOIDED = (
    "is had",
    "are had",
    "be had",
    "at hand",
    "is told",
    "are told",
    "be told",
    "goes on",
    "go on",
    "going on",
    "went on",
    "gives way",
    "give way",
    "anew",
    "besides",
    "by its own clock",
    "by their own clocks",
    "for want of",
    "will do without",
    "looks into",
    "read where it lies",
)
"""CONTRIBUTING.md names plain words for them: available, reported, continues, is replaced, again, also."""
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "config/README.md",
        *(ROOT / "docs").glob("**/*.md"),
    ]
)
MODULES = sorted((ROOT / "fedrec").rglob("*.py"))
BEGINS_AS_QUESTION = re.compile(r"\W*(What|Who|Whose|Whom|Of|How)\b")
NO_PROSE = (
    r"^<!-- table: .*?^<!-- end of table -->$",  # generated
    r"^( *)```.*?^\1```$",
    r"<!--.*?-->",
)
LINES_APART = re.compile(r"\s*$|#|\|")
"""An empty line, a heading, a row of a table."""
ITEM = re.compile(r" {0,3}(?:[-*+]|\d+\.) +")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> Iterator[str]:
    """Paragraphs and list items of a page in Markdown; no code, tables, headings or generated blocks."""
    for pattern in NO_PROSE:
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = ITEM.match(line)
        is_code = line.startswith(" " * 4) and not block
        if (item or is_code or LINES_APART.match(line)) and block:
            yield " ".join(block)
            block = []
        if item:
            block = [line[item.end() :].strip()]
        elif not is_code and not LINES_APART.match(line):
            block.append(line.strip())


def sentences_of(block: str) -> list[str]:
    """Sentences of a block: a code span, a picture or an address is one word, a link is its text."""
    block = re.sub(r"`[^`]*`", "CODE", block)
    block = re.sub(r"!\[[^]]*\]\([^)]*\)", "PICTURE", block)
    block = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", block)
    block = re.sub(r"https?://\S+", "ADDRESS", block).replace("**", "")
    block = re.sub(r"\b(e\.g|i\.e|etc|vs|cf)\.", r"\1", block)
    return [one for one in re.split(r"(?<=[.?!])[\"')*]*\s+", block) if one.strip()]


def sentences(text: str) -> list[str]:
    return [sentence for block in blocks_of(text) for sentence in sentences_of(block)]


def words_in(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def too_long(text: str) -> list[tuple[int, str]]:
    return [(words, one) for one in sentences(text) if (words := words_in(one)) > MOST_WORDS]


def no_questions(text: str) -> list[str]:
    """Sentences that begin as a question and are none."""
    return [
        one
        for one in sentences(text)
        if BEGINS_AS_QUESTION.match(one) and not one.rstrip("\"')*").endswith("?")
    ]


def avoided_in(text: str) -> list[str]:
    return [one for one in AVOIDED if re.search(rf"\b{one}\b", text, re.IGNORECASE)]


def avoided_in_page(text: str) -> list[tuple[list[str], str]]:
    """Sentences with expressions to avoid; words in italics are quoted."""
    plain = [(one, re.sub(r"\*[^*]+\*", "", one)) for one in sentences(text)]
    return [(found, one) for one, rest in plain if (found := avoided_in(rest))]


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The help of a command and of those below it, each in one line."""
    yield parser.prog, " ".join(parser.format_help().split())
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from helps(command)


def first_lines(module: ast.AST) -> Iterator[tuple[str, str]]:
    """The first docstring lines of a module and its public classes and functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            text = ast.get_docstring(node)
            if text and not name.startswith("_"):
                yield name, text.partition("\n")[0]


PAGE = """
# Of a heading

One, e.g. `a. b`. Two
lines [of a. link](x.md) and **bold.** fedrec?

- An item:
  more.
- 3.5 more

      code. code

1. First. Second

    code. code

| a. | table. |

```sh
code. code
```

<!-- table: a -->

A. B.

<!-- end of table -->

End.<!-- number: a.csv; b --> Last
"""


def test_a_page_is_read_by_sentences():
    assert sentences(PAGE) == [
        "One, e.g CODE.",
        "Two lines of a.",
        "link and bold.",
        "fedrec?",
        "An item: more.",
        "3.5 more",
        "First.",
        "Second",
        "End.",
        "Last",
    ]


@pytest.mark.parametrize(
    ("text", "long", "begun", "avoided"),
    [
        ("Words `a b c` " * 12 + "are.", 0, 0, 0),
        ("Words `a b c` " * 13 + "are.", 1, 0, 0),
        ("Short. " + "word " * 26, 1, 0, 0),
        ("It ends. What is it?", 0, 0, 0),
        ("It ends. What is stopped ends.", 0, 1, 0),
        ("- **Of all** some end.", 0, 1, 0),
        ("Training\ngoes on.", 0, 0, 1),
        ("Write no *goes on*, nor a `goes on`.", 0, 0, 0),
    ],
)
def test_what_breaks_the_guide_is_found(text, long, begun, avoided):
    found = (too_long(text), no_questions(text), avoided_in_page(text))
    assert tuple(map(len, found)) == (long, begun, avoided)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_keeps_the_guide(page):
    text = page.read_text(encoding="utf-8")
    assert too_long(text) == []
    assert no_questions(text) == []
    assert avoided_in_page(text) == []


def test_help_keeps_the_guide():
    shown = list(helps(commands._parser()))
    assert len(shown) > 20
    assert [(prog, found) for prog, text in shown if (found := avoided_in(text))] == []


@pytest.mark.parametrize("part", sorted({path.relative_to(ROOT).parts[1] for path in MODULES}))
def test_docstrings_keep_the_guide(part):
    lines = [
        (name_of(path), name, line)
        for path in MODULES
        if path.relative_to(ROOT).parts[1] == part
        for name, line in first_lines(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert [one for one in lines if avoided_in(one[-1])] == []


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()
