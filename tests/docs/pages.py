"""The README and the manual as data: fenced blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from launch.manual.marked_parts import pages_of
from tests.support.services import ROOT

PAGES = pages_of(ROOT)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`(python (?:launch/|-m )[^`]+|make [\w-]+[^`]*)`")
_VARIABLE = re.compile(r"[A-Z_]+=\S*")


class Block(NamedTuple):
    """A fenced block."""

    page: str
    language: str
    text: str


class Command(NamedTuple):
    """A command that a page shows."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Words of the command, without comments and variables of the environment."""
        words = shlex.split(self.text, comments=True)
        while words and _VARIABLE.fullmatch(words[0]):
            words.pop(0)
        return words

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


@cache
def blocks(language: str = "") -> list[Block]:
    """Blocks of all pages, or those of a language."""
    found = [Block(path.name, *match) for path in PAGES for match in _FENCE.findall(path.read_text(encoding="utf-8"))]
    return [block for block in found if language in ("", block.language)]


def commands() -> list[Command]:
    """Commands of console blocks, and those within sentences, each page's once."""
    return list(dict.fromkeys([*_in_blocks(), *_in_sentences()]))


def _in_blocks() -> Iterator[Command]:
    for block in blocks("console"):
        for line in block.text.replace("\\\n", " ").splitlines():
            command = Command(block.page, line.strip())
            if command.words:
                yield command


def _in_sentences() -> Iterator[Command]:
    for path in PAGES:
        text = _FENCE.sub("", path.read_text(encoding="utf-8"))
        yield from (Command(path.name, found.replace("\n", " ")) for found in _INLINE.findall(text))
