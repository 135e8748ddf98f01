"""For any file or spec a user gets an answer or a sentence: no traceback, and nothing is executed."""

import copy
import json
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softbellman import config as configs
from softbellman import operators as ops
from softbellman.study.files import load_params, read_metrics
from softbellman.study.store import Study

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SPEC_LETTERS = st.text(alphabet="maxsoftmellodub()()()*:.,-+e0123456789 _naif" + string.punctuation, max_size=30)
NAMES = ["max", "softmax", "mellowmax", "double", "mean", "softbellman.operators", "json", "loads", "__import__", "tau"]
SIGNS = ["(", ")", ":", "=", ",", ".", " ", "'", "5", "-1", "1e400", "nan", "inf", "\0", "\n", "é"]
SPEC_PARTS = st.lists(st.sampled_from(NAMES) | st.sampled_from(SIGNS), max_size=9).map("".join)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**300, 10**301)
    | st.floats()
    | st.sampled_from(["", "..", "../../x", "atari/pong", "max", "softmax(5)", "auto", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["learner", "steps", "x"]), inner),
    max_leaves=5,
)


def attempt(function, argument):
    """The value of a function, or the words of its ValueError, the only kind of error there may be."""
    try:
        return function(argument), None
    except ValueError as error:
        return None, str(error)


@FUZZ
@given(SPEC_LETTERS | SPEC_PARTS | st.text(max_size=20))
def test_a_spec_is_an_operator_or_a_clear_error(text):
    operator, fault = attempt(ops.parse, text)
    assert fault.strip() if fault is not None else ops.parse(str(operator)) == operator


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    config = configs.preset("classic-control").config
    return Study.create(folder, "gym/CartPole-v1", [ops.softmax(5.0)], [0, 1], config, {}, []).record


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


@FUZZ
@given(st.data())
def test_a_study_json_is_a_study_in_its_own_directory_or_a_clear_error(record, tmp_path, data):
    changed = copy.deepcopy(record)
    *path, last = data.draw(st.sampled_from([path for path in places(record) if path]))
    part = changed
    for key in path:
        part = part[key]
    if data.draw(st.booleans()):
        part[last] = data.draw(VALUES)
    else:
        del part[last]
    (tmp_path / "study.json").write_text(json.dumps(changed))
    study, fault = attempt(Study, tmp_path)
    if fault is None:
        assert all(run.path.resolve().is_relative_to(tmp_path.resolve()) for run in study.runs)
    else:
        assert str(tmp_path) in fault


@pytest.mark.parametrize("content", ["", "[]", "nul", "{}", "[" * 100_000, '{"format": 1}', "\udcff"])
def test_a_study_json_that_is_none_is_a_clear_error(tmp_path, content):
    (tmp_path / "study.json").write_text(content, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"study\.json"):
        Study(tmp_path)


@FUZZ
@given(st.binary(max_size=60) | st.text(alphabet='1e5,.-\n\r" ;nai\0', max_size=60).map(str.encode))
def test_a_metrics_file_is_a_table_of_numbers_or_a_clear_error(tmp_path, content):
    (tmp_path / "metrics.csv").write_bytes(content)
    columns, fault = attempt(read_metrics, tmp_path / "metrics.csv")
    if fault is None:
        assert len({len(column) for column in columns.values()}) <= 1
    else:
        assert "metrics.csv can't be read as a table of numbers" in fault


@FUZZ
@given(st.binary(max_size=100))
def test_a_file_of_parameters_is_refused_unless_it_is_one(tmp_path, content):
    (tmp_path / "best.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"best\.safetensors is damaged"):
        load_params(tmp_path / "best.safetensors")
