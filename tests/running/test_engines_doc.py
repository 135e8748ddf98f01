"""The page on engines and sinks: its examples run, and give what their comments promise."""

from ..pages import read_page, run_page


def test_the_page_of_engines_and_sinks(tmp_path):
    _, blocks = read_page("engines.md")
    out = f"from pathlib import Path\nout = Path({str(tmp_path / 'study')!r})"
    with run_page([out, *blocks], "engines", tolerance=0.0) as (_, promises):
        assert promises == 3
