"""The page on engines and sinks: its examples run, and give what their comments promise."""

from ..pages import read_page, run_page


def test_the_page_of_engines_and_sinks(tmp_path, monkeypatch):
    _, blocks = read_page("engines.md")
    monkeypatch.chdir(tmp_path)
    with run_page(blocks, "engines", tolerance=0.0) as (_, promises):
        assert promises == 3
