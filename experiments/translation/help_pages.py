"""The paragraphs of a page of LibreOffice's help, as text by the id of the element."""

import re
import unicodedata
from html.parser import HTMLParser

_BLOCKS = frozenset({"p", "h", "h1", "h2", "h3", "h4", "h5", "h6"})
# Elements that end a paragraph that nobody closed.
_ENDS_BLOCK = _BLOCKS | {"div", "table", "tr", "td", "th", "ul", "ol", "li", "body"}
_VOID = frozenset({"br", "img", "input", "meta", "link", "base", "hr", "col", "wbr"})
_ID = re.compile(r"(par|hd)_|N\d")
_CODE = frozenset({"code", "codeintable"})
_SWITCHES = frozenset({"switch", "switchinline"})
# Soft hyphens, zero-width characters and byte order marks: nobody sees them.
_INVISIBLE = dict.fromkeys(map(ord, "\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))


def paragraphs(html: str) -> dict[str, list[str]]:
    """The texts of a page's paragraphs and headings, by id, in the order of the page.

    Markup inside a paragraph goes, its text stays. Of wordings that depend on the
    system or the application ("Command" on a Mac, else "Ctrl"), the default one is
    kept, or the first where none is the default. Code is left out.
    """
    parser = _Page()
    parser.feed(html)
    parser.close()
    parser.end_block()
    return parser.found


def clean(text: str) -> str:
    """The text composed (NFC), without invisible characters, single blanks between.

    No-break spaces become blanks, also the narrow ones before a French colon.
    """
    return " ".join(unicodedata.normalize("NFC", text).translate(_INVISIBLE).split())


class _Case:
    """One wording of a switch, in pieces."""

    def __init__(self, default: bool) -> None:
        self.default = default
        self.pieces: list[str] = []


class _Page(HTMLParser):
    """Collects paragraphs; inside one, keeps the open elements.

    An entry of `open_tags` is the tag and what its end does: None for nothing, a list
    of cases for a switch, a case for a wording. `sinks` are the lists that text goes
    to, the innermost last.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str, list[str]] = {}
        self.block: tuple[str, str] | None = None
        self.open_tags: list[tuple[str, list[_Case] | _Case | None]] = []
        self.sinks: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag in _ENDS_BLOCK:
            self.end_block()
        if self.block is None:
            if tag in _BLOCKS and _is_text(attributes):
                self.block = (tag, attributes["id"])
                self.sinks = [[]]
        elif tag in _VOID:
            if tag == "br":
                self.sinks[-1].append(" ")
        else:
            self._open_inside(tag, attributes)

    def _open_inside(self, tag: str, attributes: dict[str, str]) -> None:
        around = self.open_tags[-1][1] if self.open_tags else None
        what: list[_Case] | _Case | None = None
        if attributes.get("class") in _SWITCHES:
            what = []
        elif isinstance(around, list):
            what = _Case(attributes.get("id", "").startswith("default"))
            around.append(what)
            self.sinks.append(what.pieces)
        self.open_tags.append((tag, what))

    def handle_endtag(self, tag: str) -> None:
        if self.block is None:
            return
        if all(tag != name for name, _ in self.open_tags):
            if tag == self.block[0] or tag in _ENDS_BLOCK:
                self.end_block()
            return
        while self._close_innermost() != tag:
            pass

    def _close_innermost(self) -> str:
        tag, what = self.open_tags.pop()
        if isinstance(what, _Case):
            self.sinks.pop()
        elif isinstance(what, list) and what:
            kept = next((case for case in what if case.default), what[0])
            self.sinks[-1].extend(kept.pieces)
        return tag

    def handle_data(self, data: str) -> None:
        if self.block is None:
            return
        if self.open_tags and isinstance(self.open_tags[-1][1], list):
            return  # between the wordings of a switch there is only white space
        self.sinks[-1].append(data)

    def end_block(self) -> None:
        if self.block is None:
            return
        while self.open_tags:
            self._close_innermost()
        text = clean("".join(self.sinks[0]))
        if text:
            self.found.setdefault(self.block[1], []).append(text)
        self.block = None


def _is_text(attributes: dict[str, str]) -> bool:
    return (
        _ID.match(attributes.get("id", "")) is not None
        and attributes.get("class") not in _CODE
    )
