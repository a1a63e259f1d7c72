"""A report as a reader's program finds it: its elements, texts, tables and links."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "link", "br", "input", "wbr", "source"}


@dataclass
class Element:
    tag: str
    attributes: dict
    texts: list = field(default_factory=list)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


class ReportPage(HTMLParser):
    """`elements` in the order of their beginnings; `unclosed`: tags still open at the end."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.unclosed, self.wrong = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = Element(tag, dict(attributes))
        self.elements.append(element)
        if tag not in VOID:
            self.unclosed.append(element)

    def handle_endtag(self, tag):
        if not self.unclosed or self.unclosed[-1].tag != tag:
            self.wrong.append(tag)
        else:
            self.unclosed.pop()

    def handle_data(self, text):
        for element in self.unclosed:
            element.texts.append(text)

    def all(self, *tags):
        return [element for element in self.elements if element.tag in tags]

    def ids(self):
        return [element.attributes["id"] for element in self.elements if "id" in element.attributes]

    def values(self, *names):
        """Values of attributes of these names."""
        return [e.attributes[name] for e in self.elements for name in names if name in e.attributes]

    def table(self, key):
        """[[text of a cell]] of the table with this id, its header row first."""
        start = next(k for k, e in enumerate(self.elements) if e.tag == "table" and e.attributes["id"] == key)
        rows = []
        for element in self.elements[start + 1 :]:
            if element.tag == "table":
                break
            if element.tag == "tr":
                rows.append([])
            elif element.tag in ("th", "td"):
                rows[-1].append(element.text)
        return rows

    def text(self):
        return self.all("body")[0].text
