"""Numbers of two pages of the documentation are found in the tests and in the source, and the other way round."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_report_has_its_tests_and_every_number_its_report():
    page = (ROOT / "docs" / "field-reports.md").read_text()
    listed = [int(number) for number in re.findall(r"^\| L(\d+) \|", page, re.MULTILINE)]
    sources = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    tested = {
        int(number)
        for numbers in re.findall(r"^def test_((?:l\d+_)+)", sources, re.MULTILINE)
        for number in re.findall(r"\d+", numbers)
    }
    assert listed == sorted(tested) == list(range(1, 49))


def test_every_deviation_is_named_in_the_source():
    listed = re.findall(r"^\| (D\d+) \|", (ROOT / "docs" / "deviations.md").read_text(), re.MULTILINE)
    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    named = {name for names in re.findall(r"[Dd]eviations?\s+(D\d+(?:, D\d+)*)", sources) for name in names.split(", ")}
    assert len(listed) == len(set(listed)) and set(listed) == named
