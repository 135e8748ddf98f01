"""Operators as text: there and back, and what is said when the text is wrong."""

import math
import sys
from dataclasses import field
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softbellman import operators as ops
from softbellman.operators.spec import plain

RATES = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
SINGLE = st.one_of(
    st.just(ops.maximum()), st.just(ops.mean()), st.builds(ops.softmax, RATES), st.builds(ops.mellowmax, RATES)
)
OPERATORS = st.one_of(SINGLE, st.builds(ops.double, SINGLE))


@ops.operator
class TopMean(ops.Operator):
    count: int = field(default=2, metadata={"static": True})
    inner: ops.Operator = ops.mean()
    rate: float = 1.0
    flag: bool = False

    def policy(self, row):
        return self.inner.policy(row)


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    """A module of a user's own, with operators in every form."""
    module = ModuleType("tests_of_specs.mine")
    module.top = TopMean(3)
    module.TopMean = TopMean
    module.build = lambda count: TopMean(count)
    module.number = 5
    module.not_an_operator = lambda: 5
    monkeypatch.setattr(TopMean, "__module__", "tests_of_specs.mine")
    monkeypatch.setitem(sys.modules, "tests_of_specs", ModuleType("tests_of_specs"))
    monkeypatch.setitem(sys.modules, "tests_of_specs.mine", module)


@settings(deadline=None)
@given(OPERATORS)
def test_round_trip(op):
    assert ops.parse(str(op)) == op
    assert ops.parse(str(op).replace("(", ":").replace(")", "")) == op


@settings(deadline=None)
@given(OPERATORS, OPERATORS)
def test_plain_names_are_safe_and_tell_operators_apart(a, b):
    assert set(plain(str(a))) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert (plain(str(a)) == plain(str(b))) == (a == b)


@pytest.mark.parametrize(
    ("op", "spec", "name"),
    [
        (ops.maximum(), "max", "max"),
        (ops.mean(), "mean", "mean"),
        (ops.softmax(5), "softmax(5)", "softmax-5"),
        (ops.softmax(1e30), "softmax(1e30)", "softmax-1e30"),
        (ops.mellowmax(0.1), "mellowmax(0.1)", "mellowmax-0.1"),
        (ops.mellowmax(1e-9), "mellowmax(1e-09)", "mellowmax-1e-09"),
        (ops.double(ops.softmax(5)), "double(softmax(5))", "double-softmax-5"),
        (ops.double(ops.maximum()), "double(max)", "double-max"),
    ],
)
def test_spelling(op, spec, name):
    assert (str(op), plain(str(op))) == (spec, name)


@pytest.mark.parametrize(
    ("spec", "op"),
    [
        ("softmax:5", ops.softmax(5)),
        ("double:softmax:5", ops.double(ops.softmax(5))),
        ("double:max", ops.double(ops.maximum())),
        ("double(mellowmax:.5)", ops.double(ops.mellowmax(0.5))),
        (" double ( softmax ( 5 ) ) ", ops.double(ops.softmax(5))),
        ("max()", ops.maximum()),
        ("softmax(+5.)", ops.softmax(5)),
        ("softmax(1E3)", ops.softmax(1000)),
        ("tests_of_specs.mine:top", TopMean(3)),
        ("tests_of_specs.mine:TopMean", TopMean()),
        ("tests_of_specs.mine:TopMean(3)", TopMean(3)),
        ("tests_of_specs.mine:TopMean:3", TopMean(3)),
        ("tests_of_specs.mine:TopMean(3, softmax(2), 0.5, True)", TopMean(3, ops.softmax(2), 0.5, True)),
        ("tests_of_specs.mine:build(4)", TopMean(4)),
        ("double(tests_of_specs.mine:build(4))", ops.double(TopMean(4))),
    ],
)
def test_reading(spec, op):
    assert ops.parse(spec) == op
    assert ops.parse(str(op)) == op


def test_a_user_operator_keeps_the_types_of_its_fields():
    op = ops.parse(str(TopMean(3, ops.double(ops.softmax(2)), 4.0, True)))
    assert str(op) == "tests_of_specs.mine:TopMean(3, double(softmax(2)), 4.0, True)"
    assert (type(op.count), type(op.rate), type(op.flag)) == (int, float, bool)
    assert plain(str(op)) == "tests_of_specs.mine-TopMean-3-double-softmax-2-4.0-True"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sofmax(5)", r"Unknown operator 'sofmax'\. Did you mean softmax.*Allowed are max, mean, softmax\(5\)"),
        ("maximum", r"Unknown operator 'maximum'\. Did you mean max"),
        ("Softmax(5)", r"Did you mean softmax"),
        ("qlearning", r"Unknown operator 'qlearning'\. Allowed are"),
        ("double(sofmax(5))", r"Unknown operator 'sofmax'"),
        ("sofmax:5", r"Unknown operator 'sofmax'\. Did you mean softmax"),
        ("", r"'' is not an operator\. Allowed are"),
        ("5", r"'5' is not an operator"),
        ("(max)", r"is not an operator"),
        ("softmax", r"'softmax': softmax takes tau, and was given none"),
        ("softmax()", r"softmax takes tau, and was given none"),
        ("softmax(1, 2)", r"softmax takes tau, and was given 2"),
        ("max(3)", r"'max\(3\)': max takes no argument, and was given 1"),
        ("double", r"double takes op, and was given none"),
        ("softmax(5", r"'softmax\(5': a parenthesis is not closed, or something follows it"),
        ("softmax(5)x", r"a parenthesis is not closed, or something follows it"),
        ("softmax(5))", r"a parenthesis has no partner"),
        ("double(softmax(5)", r"a parenthesis has no partner"),
        ("softmax(1)(2)", r"a parenthesis has no partner"),
        ("softmax 5", r"cannot read '5'"),
        ("softmax:", r"nothing follows the colon"),
        ("softmax(5,)", r"'' is neither a number nor an operator"),
        ("softmax(1_000)", r"'1_000' is neither a number nor an operator"),
        ("softmax(2+3)", r"'2\+3' is neither a number nor an operator"),
        ("softmax(5), controller=noise", r"controller=noise is a setting of an arm.* stands alone: softmax\(5\)"),
        ("max, returns=3, gap=gap(0.9, 1)", r"returns=3 is a setting of an arm.* stands alone: max\."),
        ("mine.x:Op(3), recipe.gap = gap(0.9)", r"recipe\.gap = gap\(0\.9\) is a setting of an arm"),
        ("general_mellowmax(mean, kappa=mean(1), 5)", "write the value alone"),
        ("softmax(tau=5)", r"write the value alone, without a name, as in softmax\(5\)"),
        ("softmax(max)", r"softmax: tau \(Maximum\(\)\) must be a number"),
        ("softmax(True)", r"softmax: tau \(True\) must be a number"),
        ("softmax(-1)", r"softmax: tau \(-1\) must be finite and at least 0; 0 is the mean"),
        ("softmax(nan)", r"softmax: tau \(nan\) must be finite and at least 0"),
        ("mellowmax(inf)", r"mellowmax: omega \(inf\) must be finite; for its limit use max, or double\(max\)"),
        ("double(5)", r"double\(5\): not an operator"),
        ("double(double(max))", r"double\(double\(max\)\): it is doubled already"),
        ("no.such.module:name", r"cannot import 'no\.such\.module' \(No module named 'no'\).*PYTHONPATH"),
        ("sofmax:five", r"cannot import 'sofmax'.*did you mean softmax"),
        ("tests_of_specs.mine:topp", r"module 'tests_of_specs\.mine' has no 'topp'; it has top"),
        ("tests_of_specs.mine:number", r"number is neither an operator nor a class or function"),
        (
            "tests_of_specs.mine:not_an_operator",
            r"made 5; an operator is of a subclass of softbellman\.operators\.Operator",
        ),
        ("tests_of_specs.mine:top(3)", r"top is an operator already and takes no arguments"),
        (
            "tests_of_specs.mine:build",
            r"build takes count, and was given none\. It must be an operator, or make one; an operator is of",
        ),
        ("tests_of_specs.mine:TopMean(1, 2, 3, 4, 5)", r"TopMean takes count, inner, rate, flag, and was given 5"),
    ],
)
def test_wrong_specs_say_what_is_allowed(spec, message):
    with pytest.raises(ops.SpecError, match=message):
        ops.parse(spec)


FAULTY = {
    "name": ("x = 1\nundefined_thing\n", "NameError: name 'undefined_thing' is not defined"),
    "syntax": ("x = 1\ny = (\n", "SyntaxError: '(' was never closed"),
    "package": ("import os\nimport no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
    "absent": ("import os\nfrom os import no_such_name\n", "ImportError: cannot import name 'no_such_name' from 'os'"),
    "attribute": ("import os\nos.no_such_name\n", "AttributeError: module 'os' has no attribute 'no_such_name'"),
    "exits": ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    "silent": ("import sys\nraise SystemExit\n", "SystemExit"),
    "lines": ("x = 1\nraise RuntimeError('first\\nsecond')\n", "RuntimeError: first second"),
    "ours": (
        "from softbellman import operators as ops\nmine = ops.softmax(-1)\n",
        "ValueError: softmax: tau (-1) must",
    ),
}


@pytest.mark.parametrize("kind", FAULTY)
def test_what_a_module_raises_is_said_with_its_line(kind, tmp_path, monkeypatch):
    source, said = FAULTY[kind]
    path = tmp_path / f"faulty_{kind}.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for spec in (f"faulty_{kind}:mine", f"double(faulty_{kind}:mine)"):
        with pytest.raises(ops.SpecError) as caught:
            ops.parse(spec)
        message = str(caught.value)
        assert said in message and "fails when it is imported" in message and "PYTHONPATH" not in message
        assert message.endswith(f"({path}, line 2)") and message.count(path.name) == 1


def test_what_a_factory_of_ones_own_raises_is_said_with_its_line(tmp_path, monkeypatch):
    path = tmp_path / "faulty_factories.py"
    path.write_text("def odd(n):\n    raise ValueError(f'{n} is even')\ndef key():\n    return {}['x']\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ops.SpecError) as caught:
        ops.parse("faulty_factories:odd(2)")
    assert str(caught.value) == f"'faulty_factories:odd(2)': ValueError: 2 is even ({path}, line 2)"
    with pytest.raises(ops.SpecError, match=r"KeyError: 'x' \(.*faulty_factories.py, line 4\)$"):
        ops.parse("faulty_factories:key")
    with pytest.raises(ops.SpecError, match="SystemExit"):
        ops.parse("sys:exit")


def test_one_or_many_operators_or_their_specs_are_a_list():
    two = [ops.maximum(), ops.softmax(5.0)]
    assert ops.as_operators("max") == ops.as_operators(ops.maximum()) == ops.as_operators(["max"]) == two[:1]
    assert ops.as_operators(("max", ops.softmax(5))) == ops.as_operators(iter(two)) == two
    for wrong in (ops.maximum, ops.Maximum, 5, None, ["max", 5]):
        with pytest.raises(TypeError, match="is no operator"):
            ops.as_operators(wrong)


def test_an_operator_without_the_decorator_can_be_printed():
    class Bare(ops.Operator):
        pass

    assert str(Bare()).endswith("<locals>.Bare")


def test_nothing_is_evaluated():
    for spec in ("__import__('os').getcwd()", "softmax(__import__('os'))", "softmax(exit())", "os:getcwd"):
        with pytest.raises(ops.SpecError):
            ops.parse(spec)


def test_an_operator_with_an_array_for_its_parameter_can_be_printed():
    jax = pytest.importorskip("jax")
    assert str(ops.softmax(jax.numpy.asarray(5.0))) == "softmax(5)"
    names = []
    jax.jit(lambda tau: names.append(str(ops.softmax(tau))))(5.0)
    jax.vmap(lambda tau: names.append(str(ops.double(ops.softmax(tau)))))(jax.numpy.arange(3.0))
    assert names[0].startswith("softmax(") and names[1].startswith("double(softmax(")
    assert str(ops.softmax(jax.numpy.arange(2.0))).startswith("softmax(")
    assert math.isnan(ops.softmax(jax.numpy.nan * jax.numpy.ones(())).tau)
