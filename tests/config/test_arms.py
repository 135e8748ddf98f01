"""Arms are read from text, written back, and refused in one line."""

import dataclasses
import re
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import softbellman as sb
from softbellman import operators as ops
from softbellman.config import Config, arms, as_arm, checked, fields, parse_arm, with_settings
from softbellman.config.arms import KEYS, Arm, joined, noun_of, require_different
from softbellman.gaps import AdvantageGap

from ..pages import read_page, run_page

GAP = (("recipe.gap", "gap(0.9)"),)
OPERATORS = st.sampled_from(
    ["max", "softmax(5)", "double(keep(0.1))", "entmax(1.5, 5)", "mine.operators:Sharp(2, 0.5)"]
)
LABELS = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9 _.+-]{0,20}[A-Za-z0-9_.+-])?\Z").filter(
    lambda label: label not in ops.spec.FACTORIES and label not in KEYS and label not in KEYS.values()
)
NUMBERS = st.floats(allow_nan=False)
VALUES = {
    "returns": st.integers(),
    "gap": st.sampled_from(["none", "gap(0.9)", "gap(0.9, 1)"]),
    "exploration": st.sampled_from(["policy(mellowmax(5))", "mine:Explore(1, softmax(2))"]),
    "learner.learning_rate": NUMBERS,
    "learner.reward_scale": NUMBERS,
    "learner.reward_clip": st.none() | NUMBERS,
    "learner.batch_size": st.integers(min_value=-(10**15), max_value=10**15),
    "network.hidden": st.lists(st.integers(), max_size=3).map(tuple),
    "network.kind": st.sampled_from(["mlp", "mine.networks:wide"]),
}
SETTINGS = st.fixed_dictionaries({}, optional=VALUES)


@given(OPERATORS, SETTINGS, st.just("") | LABELS)
def test_what_is_written_is_read_back(operator, settings, label):
    made = arms._made(operator, settings.items(), label or "unlabelled")
    assert dict(made.changes) == {KEYS[key]: value for key, value in settings.items()}
    for each in (made, dataclasses.replace(made, label="")):
        assert each.name == (each.label or each.spec) and each.name in str(each)
        if len(each.name) <= arms.LONGEST:
            assert parse_arm(str(each)) == each


@given(st.permutations([("gap", "gap(0.9)"), ("learner.gamma", "0.50"), ("returns", "3"), ("recipe.head", "duelling")]))
def test_the_order_of_keys_and_the_spelling_of_numbers_make_no_other_arm(pairs):
    text = ",".join(f" {key} = {value} " for key, value in pairs)
    assert str(parse_arm(f"a = max,{text}")) == "a=max, returns=3, gap=gap(0.9), head=duelling, learner.gamma=0.5"


@pytest.mark.parametrize(
    "spec",
    [
        *("max", "softmax(5)", "double(softmax(0.5))", "entmax(1.5, 5)", "softmax(1e20)"),
        *("mine.operators:Sharp(2, 1e-3)", "mine:Odd(Value(x=1, y=(2, 3)))", "mine:Broken("),
    ],
)
def test_an_operator_alone_is_an_arm_as_it_stands_though_its_module_is_not_at_hand(spec):
    arm = parse_arm(spec)
    assert arm == Arm(spec) and str(arm) == arm.name == arm.spec == spec
    assert arm.config(Config()) == Config() and noun_of([arm]) == "operator"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("softmax:5", "softmax(5)"),
        ("entmax:1.5, 5", "entmax(1.5, 5)"),
        ("x=entmax:1.5,5, returns=3", "x=entmax(1.5, 5), returns=3"),
        ("double:softmax:5, gap=gap(0.9)", "double(softmax(5)), gap=gap(0.9)"),
        ("max, recipe.gap=gap(0.9)", "max, gap=gap(0.9)"),
        ("max, learner.replay_capacity=2e4", "max, learner.replay_capacity=20000"),
        ("max, learner.learning_rate=0.00001", "max, learner.learning_rate=1e-05"),
        ("max, learner.huber_delta=1E30", "max, learner.huber_delta=1e30"),
        ("max, learner.reward_clip=None", "max, learner.reward_clip=none"),
        ("max, network.hidden=64 32", "max, network.hidden=64 32"),
        ("max, network.hidden=none", "max, network.hidden=none"),
        ("max, gap=none", "max, gap=none"),
    ],
)
def test_several_spellings_are_one_arm(text, canonical):
    assert str(as_arm(text)) == canonical and as_arm(canonical) == as_arm(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gap=gap(0.9)", "'gap' is a setting, and no label; an arm begins with its operator: 'max, returns=3'"),
        ("learner.gamma=max", "'learner.gamma' is a setting, and no label"),
        ("softmax=5", "label 'softmax' is the name of an operator; write softmax(5), or choose another label"),
        ("a/b=max", "label 'a/b' must begin with a letter, digit or _, and have these, spaces and . + - only"),
        ("-x=max", "label '-x' must begin with a letter, digit or _"),
        ("max, gap", "'gap' is no setting; write key=value, such as gap=gap(0.9)"),
        ("softmax(5), 3", "'3' is no setting"),
        ("max,", "'' is no setting"),
        ("max, gap=", "gap has no value"),
        ("max, gamma=0.9", "unknown setting 'gamma'; did you mean learner.gamma?"),
        ("max, learner.gama=0.9", "unknown setting 'learner.gama'; did you mean learner.gamma"),
        ("max, gaps=gap(1)", "unknown setting 'gaps'; did you mean gap?"),
        ("max, gama=0.9", "unknown setting 'gama'; did you mean gamma?"),
        ("max, xyzzy=1", "unknown setting 'xyzzy'; there are returns, gap, target"),
        ("max, returns=3, returns=3", "returns is there twice"),
        ("max, gap=none, recipe.gap=none", "recipe.gap is there twice"),
        ("max, returns=1.5", "recipe.returns ('1.5') must be a whole number, such as 2"),
        ("max returns=3", "arm 'max returns=3': write a comma before returns"),
        ("a=softmax(5) gap=gap(0.9)", "write a comma before gap"),
        ("max, gap=gap(0.9) learner.gamma=1", "write a comma before learner.gamma"),
        ("max, returns=none", "recipe.returns ('none') must be a whole number"),
        ("max, learner.gamma=high", "learner.gamma ('high') must be a number, such as 0.5"),
        ("max, network.hidden=64 wide", "network.hidden ('wide') must be a whole number"),
        ("max, loop.steps=10", "no arm can change loop.steps: arms of a study are trained for the same steps"),
        ("max, loop.test_epsilon=0", "no arm can change loop.test_epsilon: "),
        ("max, protocol.frame_skip=1", "no arm can change protocol.frame_skip: arms of a study play the same game"),
        ("max, checkpoint.keep=1", "no arm can change checkpoint.keep: it changes no result, and is the study's"),
        ("max, loop.block_width=2", "no arm can change loop.block_width: it changes no result"),
        ("max, network.kind=" + "x" * 200, "its name has more than 150 letters; give it a label"),
    ],
)
def test_what_is_no_arm_is_refused_in_a_line(text, message):
    with pytest.raises(ValueError, match=r"^arm '") as caught:
        as_arm(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["softmax:tau=5", "softmax(tau=5)", "softmax(5, gap=gap(0.9)", "nonsense, returns=3", ""]
)
def test_what_is_wrong_with_an_operator_is_said_as_everywhere(text):
    with pytest.raises(ops.SpecError):
        as_arm(text)


def test_every_field_of_a_configuration_can_be_changed_or_has_a_reason():
    free = {path for path, _ in fields(Config()) if not arms._reason(path)}
    assert free == set(KEYS.values()) and {path.partition(".")[0] for path in free} == {
        *("learner", "recipe", "loop", "network"),
    }
    assert [path for path in free if path.startswith("loop.")] == ["loop.num_envs"]
    sections = {path.partition(".")[0] for path, _ in fields(Config())}
    assert sections == {"learner", "recipe", "network", *(name.partition(".")[0] for name in arms._FIXED)}


def test_arms_are_made_in_python_of_values_and_of_words():
    made = sb.arm(
        ops.softmax(5.0), gap="gap(0.9)", label=" ours ", settings={"learner.gamma": 1, "network.hidden": [3]}
    )
    assert str(made) == "ours=softmax(5), gap=gap(0.9), learner.gamma=1, network.hidden=3"
    assert made.made() == ops.softmax(5.0) and made == parse_arm(str(made))
    assert str(sb.arm(made, returns=3, label="mine")) == str(made).replace(
        "ours=softmax(5)", "mine=softmax(5), returns=3"
    )
    assert sb.arm("softmax:5, returns=3") == as_arm("softmax(5), returns=3") == as_arm(as_arm("softmax:5, returns=3"))
    assert as_arm(Arm("softmax:5")).operator == "softmax(5)" and as_arm(ops.maximum()) == Arm("max")
    for wrong, kind, message in (
        ({"returns": "3"}, ValueError, r"recipe.returns \('3'\) must be a whole number"),
        ({"gap": "gap(0.9), returns=3"}, ValueError, "can't be written as text: a value has a comma or an equals sign"),
        ({"label": "a=b"}, ValueError, "label 'a=b' must begin"),
        ({"label": "a, b"}, ValueError, "label 'a, b' must begin"),
        ({"label": 3}, ValueError, "label 3 must begin"),
        ({"label": None}, ValueError, "label None must begin"),
        ({"steps": 3}, ValueError, r"unknown setting 'steps'; did you mean loop.steps\?"),
    ):
        with pytest.raises(kind, match=message):
            sb.arm("max", **wrong)
    for wrong in (3, ops.softmax, None):
        with pytest.raises(TypeError, match="is no operator"):
            sb.arm(wrong)


def test_an_arm_has_the_studys_configuration_but_for_its_settings():
    base = with_settings(Config(), {"learner.gamma": 0.5})
    config = parse_arm("x=max, learner.learning_rate=0.001, gap=gap(0.9), learner.reward_clip=none").config(base)
    changed = {path: value for path, value in fields(config) if value != dict(fields(base))[path]}
    assert changed == {"learner.learning_rate": 0.001, "recipe.gap": "gap(0.9)", "learner.reward_clip": None}
    assert config.learner.gamma == 0.5 and checked(config)


def test_a_family_is_of_arms_that_differ_in_the_operators_numbers_alone():
    texts = ("softmax(5), gap=gap(0.9)", "a=softmax(1), gap=gap(0.9)", "softmax(5), gap=gap(0.8)", "softmax(5)")
    assert [parse_arm(text).family for text in texts] == [
        *("softmax, gap=gap(0.9)", "softmax, gap=gap(0.9)", "softmax, gap=gap(0.8)", "softmax")
    ]


def test_arms_that_differ_in_their_labels_at_most_are_refused():
    require_different([Arm("max"), Arm("max", GAP), Arm("softmax(5)", GAP, "x")])
    for one, other in ((Arm("max", GAP), Arm("max", GAP, "x")), (Arm("max", (), "y"), Arm("max", (), "x"))):
        with pytest.raises(ValueError, match="differ in their labels at most; leave one out"):
            require_different([one, Arm("mean"), other])


def test_names_with_commas_are_listed_by_semicolons():
    assert joined(["max", "entmax(1.5, 5)"]) == "max, entmax(1.5, 5)"
    assert joined([Arm("max"), Arm("max", GAP)]) == "max; max, gap=gap(0.9)"
    assert noun_of([Arm("max"), Arm("max", (), "x")]) == noun_of([Arm("max", GAP)]) == "arm"


def test_the_operator_that_was_given_is_no_part_of_what_an_arm_is():
    assert as_arm(ops.softmax(5.0)) == Arm("softmax(5)") and hash(as_arm("max")) == hash(Arm("max"))
    assert dataclasses.replace(as_arm("max"), given=None) == as_arm("max")


def test_arms_are_read_without_jax():
    code = "import sys, softbellman as sb; sb.arm('softmax(5)', gap='gap(0.9)'); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_section_about_arms_shows_is_true():
    page, blocks = read_page("variants.md")
    with run_page(blocks, "arms_page", tolerance=0.0) as (_, promises):
        assert promises == 2
    shown = re.search(r"^## Arms$.*?--arms (.*?)$", page, re.MULTILINE | re.DOTALL)
    assert shown
    for text in shlex.split(shown[1]):
        assert str(as_arm(text)) == text


def test_a_part_is_taken_as_a_value_too():
    expected = parse_arm("max, gap=gap(0.9)")
    assert sb.arm("max", gap=AdvantageGap(0.9)) == expected
    assert sb.arm("max", settings={"recipe.gap": AdvantageGap(0.9)}) == expected
    assert with_settings(Config(), {"recipe.gap": AdvantageGap(0.9)}).recipe.gap == "gap(0.9)"


def test_no_arm_is_called_as_the_random_policy_is():
    with pytest.raises(ValueError, match="'random actions' is that of the random policy"):
        parse_arm("random actions=max")
