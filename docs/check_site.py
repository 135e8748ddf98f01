"""Checks a site that was built: every link within it leads somewhere, and no page fetches anything from a network.

python docs/check_site.py build/site
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

FETCHED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src", "object": "data"}
ABROAD = re.compile(r"^(https?:)?//")


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


if __name__ == "__main__":
    found = faults_of_site(Path(sys.argv[1]))
    print("\n".join(found) or "all links lead somewhere, and nothing is fetched from a network")
    sys.exit(bool(found))
