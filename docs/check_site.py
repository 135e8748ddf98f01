"""Checks a site that was built: links within it lead somewhere, nothing is fetched from a network, pages fit a window.

python docs/check_site.py build/site
"""

import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag

if TYPE_CHECKING:
    from tests.browser import Browser

FETCHED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src", "object": "data"}
ABROAD = re.compile(r"^(https?:)?//")
WIDTHS = (1280, 390)
"""Of windows on a desk and on a phone, in CSS pixels."""
SCROLLED = """[...document.querySelectorAll(innerWidth > 1000 ? ":root, #gallery .table-wrapper" : ":root")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => `${each.scrollWidth} px`).join(", ")"""
"""Widths of what is wider than its place: the page itself and, on a desk, a table of the gallery; others may scroll."""


class Page(HTMLParser):
    """A page: what can be linked to in it, what it links to, and what it fetches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.fetched = {""}, set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the element's anchor and addresses."""
        facts = {name: value or "" for name, value in attrs}
        self.anchors.update(facts[name] for name in ("id", "name") if name in facts)
        if tag == "a" and "href" in facts:
            self.links.add(facts["href"])
        if FETCHED.get(tag) in facts:
            self.fetched.add(facts[FETCHED[tag]])


def faults_of_site(site: Path) -> list[str]:
    """Lists broken links, and addresses of a network that a browser would ask when it shows a page."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    faults = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        faults += [f"{name} fetches {address}" for address in sorted(page.fetched) if ABROAD.match(address)]
        for link in sorted(page.links | page.fetched):
            if re.match(r"\w+:|//", link):
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            if not target.exists() or (target in pages and unquote(anchor) not in pages[target].anchors):
                faults.append(f"{name} links to {link}, which is not there")
    for style in sorted(site.rglob("*.css")):
        addresses = re.findall(r"(?:@import\s+|url\()\s*[\"']?([^\"')\s]+)", style.read_text())
        faults += [f"{style.relative_to(site)} fetches {each}" for each in addresses if ABROAD.match(each)]
    return faults


def faults_of_width(site: Path, browser: "Browser") -> list[str]:
    """Lists pages that scroll sideways in a browser."""
    faults = []
    for path in sorted(site.rglob("*.html")):
        for width in WIDTHS:
            browser.open(path, width)
            if scrolled := browser.value(SCROLLED):
                faults.append(f"{path.relative_to(site)} scrolls sideways in a window of {width} px: {scrolled}")
    return faults


def main(site: Path) -> int:
    """Prints what is wrong with a site; widths are looked at where there is a browser."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.browser import Browser, find_browser

    faults, found = faults_of_site(site), find_browser()
    if found is not None:
        with tempfile.TemporaryDirectory() as profile, Browser(found, Path(profile)) as browser:
            faults += faults_of_width(site, browser)
    widths = "pages fit their windows" if found else "there is no browser to see whether pages fit their windows"
    print("\n".join(faults) or f"all links lead somewhere, nothing is fetched from a network, {widths}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
