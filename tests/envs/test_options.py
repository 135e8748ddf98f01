"""Options of environments are read from words, kept plain, and said again."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from softbellman.config import Config, config_from, decisive, replaced, with_settings
from softbellman.envs import EnvOptions
from softbellman.envs.options import read_options, written_options


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x=5", 5),
        ("x=-0.5", -0.5),
        ("x=true", True),
        ("x=null", None),
        ("x=True", "True"),
        ("x=4x4", "4x4"),
        ('x="5"', "5"),
        ("x=", ""),
        ("x=a=b", "a=b"),
        ('x=["SF", "FG"]', ["SF", "FG"]),
        ('x={"b": 1, "a": [2]}', {"a": [2], "b": 1}),
        ("x=[1, 2", "[1, 2"),
        ("x=NaN", "NaN"),
        ("x=Infinity", "Infinity"),
        ("x=" + "[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_or_else_a_word(word, value):
    options = EnvOptions(options=read_options([word])).options
    assert options == {"x": value} and type(options["x"]) is type(value)
    assert read_options(written_options(options)) == options


@pytest.mark.parametrize("word", ["size", "=5", "5=3", "a-b=3", "a b=3", "--x=1"])
def test_a_word_of_another_form_is_refused(word):
    with pytest.raises(ValueError, match="is no option of an environment; write name=value"):
        read_options([word])
    with pytest.raises(ValueError, match="size is given twice, as 5 and as '6'"):
        read_options(["size=5", "size=6"])


def test_what_is_kept_is_plain_and_in_order_and_no_alias():
    mine = {"z": (1, np.int64(2)), "a": np.float32(0.9), "m": np.array([[0.1]], np.float32), "flag": np.bool_(True)}
    kept = EnvOptions(options=mine).options
    assert list(kept.items()) == [("a", 0.9), ("flag", True), ("m", [[0.1]]), ("z", [1, 2])]
    assert json.loads(json.dumps(kept)) == kept and type(kept["flag"]) is bool
    nested = {"x": [1]}
    options = EnvOptions(options=nested)
    nested["x"].append(2)
    assert options.options == {"x": [1]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"x": float("nan")}, r"env\.options x \(nan\) must be a finite number"),
        ({"x": [1, float("inf")]}, r"env\.options x \(inf\)"),
        ({"x": np.float32("nan")}, r"env\.options x \(nan\)"),
        ({"x": len}, "must be a finite number, a word"),
        ({"x": {3: 4}}, "must be a finite number, a word"),
        ({"x": 1j}, "must be a finite number, a word"),
        ({"x": {1, 2}}, "must be a finite number, a word"),
        ({3: 4}, "3 is no name of an argument"),
        ({"a-b": 4}, "'a-b' is no name of an argument"),
        ({"render_mode": "human"}, "render_mode is chosen where a film is made; leave it out"),
        ("size=5", r"env\.options \('size=5'\) must be a dict"),
        (None, r"env\.options \(None\) must be a dict"),
    ],
)
def test_what_json_cannot_hold_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        with_settings(Config(), {"env.options": value})


def test_options_are_decisive_and_older_configurations_have_none():
    record = json.loads(json.dumps(asdict(Config())))
    assert record.pop("env") == {"options": {}}
    assert config_from(record) == Config()
    five = with_settings(Config(), {"env.options": {"size": 5, "a": 1}})
    assert decisive(five)["env.options"] == {"size": 5, "a": 1} != decisive(Config())["env.options"]
    turned = replaced(Config(), "env.options", {"a": 1, "size": 5})
    assert json.dumps(decisive(five)) == json.dumps(decisive(turned)) and five == turned
    assert config_from(json.loads(json.dumps(asdict(five)))) == five
