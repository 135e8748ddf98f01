"""A function or class of a user's module is found by its reference in every process, or refused with the reason."""

import functools
import sys
import textwrap

import pytest

from softbellman.references import is_reference, reference_to, resolve

MODULE = """
    import functools

    def plain(): return 1

    def kept(function):
        @functools.wraps(function)
        def inner(): return function()
        return inner

    @kept
    def wrapped(): return 2

    class Maker:
        def __call__(self): return 3
        @classmethod
        def small(cls): return 4
        def method(self): return 5

    maker = Maker()
    renamed = plain
    def plain(): return 6
    def local():
        def hidden(): return 7
        return hidden
    nameless = lambda: 8
    bound = functools.partial(plain)
"""


@pytest.fixture
def makers(tmp_path, monkeypatch):
    (tmp_path / "makers.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "failing.py").write_text("VALUE = 1\nraise RuntimeError('no licence')\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import makers  # pyright: ignore

    yield makers
    for name in ("makers", "failing", "leaving"):
        sys.modules.pop(name, None)


def test_what_has_a_name_in_a_module_goes_by_it_and_comes_back(makers):
    for given, reference in (
        (makers.plain, "makers:plain"),
        (makers.wrapped, "makers:wrapped"),
        (makers.Maker, "makers:Maker"),
        (makers.Maker.small, "makers:Maker.small"),
        (makers.Maker.method, "makers:Maker.method"),
        (functools.reduce, "_functools:reduce"),
    ):
        assert reference_to(given, "environment") == reference and is_reference(reference)
        assert resolve(reference, "environment") == given


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nameless", "a lambda has no name"),
        ("renamed", "that name leads to another object"),
        ("bound", "must be a name, or a function or class of a module that makes one"),
        ("maker", "must be a name, or a function or class of a module that makes one"),
    ],
)
def test_what_no_other_process_could_find_is_refused_with_what_to_do(makers, name, why):
    with pytest.raises(ValueError, match=why) as refused:
        reference_to(getattr(makers, name), "environment")
    assert str(refused.value).startswith("environment ") and "\n" not in str(refused.value)


def test_local_functions_bound_methods_scripts_and_modules_that_are_gone_are_refused(makers, monkeypatch):
    for given, why in (
        (makers.local(), "defined inside of a function; put it into a module"),
        (makers.maker.method, "that name leads to another object"),
        (makers.wrapped.__wrapped__, "that name leads to another object"),
        (None, "must be a name"),
        (3, "must be a name"),
    ):
        with pytest.raises(ValueError, match=why):
            reference_to(given, "environment")
    monkeypatch.setattr(makers.plain, "__module__", "__main__")
    with pytest.raises(ValueError, match="defined in the script that runs; put it into a module, outside"):
        reference_to(makers.plain, "environment")
    monkeypatch.setattr(makers.plain, "__module__", "gone")
    with pytest.raises(ValueError, match=r"can't be found again by other processes: .* cannot import gone"):
        reference_to(makers.plain, "environment")
    monkeypatch.setattr(makers.plain, "__module__", None)
    with pytest.raises(ValueError, match="must be a name"):
        reference_to(makers.plain, "environment")


@pytest.mark.usefixtures("makers")
@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        ("makers:plian", "makers has no plian; did you mean plain"),
        ("makers:Maker.smal", "Maker has no smal; did you mean small"),
        ("makers:plain.x", "plain has no x"),
        ("makers:xyzzy", "makers has no xyzzy; it has functools, plain, kept"),
        ("nowhere:make", r"cannot import nowhere \(No module named 'nowhere'\); is its directory on PYTHONPATH"),
        ("makers.py:plain", "write makers, without .py"),
        ("__main__:plain", "in the script that runs, which other processes do not know; put it"),
        ("failing:make", r"failing fails when it is imported: RuntimeError: no licence \(.*failing.py, line 2\)"),
        ("leaving:make", r"leaving fails when it is imported: SystemExit: 3 \(.*leaving.py, line 2\)"),
    ],
)
def test_a_reference_that_leads_nowhere_says_how_far_it_led(reference, fault):
    with pytest.raises(ValueError, match=fault) as refused:
        resolve(reference, "network.kind")
    assert str(refused.value).startswith(f"network.kind {reference}") and "\n" not in str(refused.value)


def test_a_reference_has_the_form_of_one():
    assert all(map(is_reference, ("a:b", "a.b:c", "a:b.c", "ä.b:ç")))
    assert not any(map(is_reference, ("a", "a:", ":a", "a:b:c", "a/b:c", "a-b:c", "a.:b", "a:b()", "1a:b", "a b:c")))
