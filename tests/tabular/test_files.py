"""MDPs from files: both formats, and every way in which a file can be wrong."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from softbellman import memory
from softbellman import operators as ops
from softbellman.tabular import FiniteMDP, files, solve
from softbellman.tabular.files import read_mdp

DOCUMENT = {
    "states": ["here", "there"],
    "actions": 2,
    "gamma": 0.9,
    "transitions": [
        ["here", 0, "there", 1.0, -1.0],
        ["there", 0, "here", 0.5, -1.0],
        ["there", 0, "there", 0.5, -1.0],
        ["there", 1, None, 1.0, 10.0, True],
    ],
}
LISTS = {
    "state": [0, 1, 1, 1],
    "action": [0, 0, 0, 1],
    "next_state": [1, 0, 1, -1],
    "probability": [1.0, 0.5, 0.5, 1.0],
    "reward": [-1.0, -1.0, -1.0, 10.0],
    "terminated": [False, False, False, True],
    "num_states": 2,
    "num_actions": 2,
    "gamma": 0.9,
}
DENSE = {"transition": np.ones((1, 2, 1)), "reward": [[1.0, 0.0]], "gamma": 0.9}


def written(path, content):
    """Write a document, text, bytes, or arrays, as the ending says."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif path.suffix == ".npz":
        np.savez(path, **content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(("name", "content"), [("a.json", DOCUMENT), ("a.npz", LISTS)])
def test_both_formats_give_the_documented_mdp(tmp_path, name, content):
    mdp = read_mdp(written(tmp_path / name, content))
    assert mdp.legal.tolist() == [[True, False], [True, True]] and mdp.gamma == 0.9
    assert solve(mdp, ops.maximum()).values == pytest.approx([8.0, 10.0], abs=1e-12)


def test_the_example_of_the_documentation_is_read(tmp_path):
    start, end = (files.__doc__.index(mark) for mark in ('{"states"', "- `states`"))
    mdp = read_mdp(written(tmp_path / "example.json", files.__doc__[start:end]))
    assert solve(mdp, ops.maximum()).values == pytest.approx([8.0, 10.0], abs=1e-12)


def test_dense_arrays_are_read(tmp_path):
    rng = np.random.default_rng(0)
    transition = rng.dirichlet(np.ones(3), size=(3, 2))
    arrays = {"transition": transition, "reward": rng.random((3, 2)), "terminal": np.array([False, False, True])}
    mdp = read_mdp(written(tmp_path / "a.npz", arrays | {"gamma": 0.5}))
    expected = FiniteMDP(**arrays, gamma=0.5)
    np.testing.assert_array_equal(mdp.backup([1.0, 2.0, 0.0]), expected.backup([1.0, 2.0, 0.0]))


def test_another_gamma_may_be_given(tmp_path):
    without = {name: value for name, value in DOCUMENT.items() if name != "gamma"}
    for content in (DOCUMENT, without):
        assert read_mdp(written(tmp_path / "a.json", content), gamma=0.5).gamma == 0.5
    with pytest.raises(ValueError, match=r"a.json: it has no gamma, and none was given"):
        read_mdp(tmp_path / "a.json")


def with_transition(entry):
    return DOCUMENT | {"transitions": [*DOCUMENT["transitions"], entry]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"states": 2,\n "actions": }', "a.json: line 2, column 13: no JSON"),
        (b'{"states": "\xff"}', "byte 12: no text in UTF-8"),
        ("[" * 100_000, "lists within lists"),
        ("[1, 2]", "it must hold one object"),
        ('{"gamma": NaN}', "NaN is no number"),
        ('{"gamma": 1, "gamma": 2}', '"gamma" is there twice'),
        ({"states": 1}, "it has no actions, transitions; what it must have"),
        (DOCUMENT | {"Gamma": 1}, "unknown: Gamma; allowed are"),
        (DOCUMENT | {"transitions": []}, "transitions must be a list with at least one"),
        (DOCUMENT | {"states": 10**15}, "states .1000000000000000. must be from 1 to 8"),
        (DOCUMENT | {"actions": 10**15}, "actions .1000000000000000. must be from 1 to 4"),
        (DOCUMENT | {"states": 0}, "states .0. must be from 1"),
        (DOCUMENT | {"states": True}, "states must be a number, or a list of names"),
        (DOCUMENT | {"states": ["here", "here", "there"]}, "states: a name occurs twice"),
        (DOCUMENT | {"gamma": "0.9"}, "gamma .'0.9'. must be a number"),
        (DOCUMENT | {"gamma": 1.0}, "a.json: gamma .1.0. must be at least 0 and below 1"),
        (with_transition(["here", 0]), r'transition 4, \["here", 0\]: it must be \[state, action, next state'),
        (with_transition(["here", 1, "here", "1", 0]), "transition 4, .*: it must be"),
        (with_transition(["here", 1, "here", 1, 0, 1]), "transition 4, .*: it must be"),
        (with_transition(["here", 1, None, 1, 0]), "transition 4: next state null is not among the 2"),
        (with_transition(["nowhere", 1, "here", 1, 0]), 'transition 4: state "nowhere" is not among the 2'),
        (with_transition(["here", 2, "here", 1, 0]), "transition 4: action 2 is not among the 2"),
        (with_transition(["here", True, "here", 1, 0]), "transition 4: action true is not among the 2"),
        (with_transition(["here", 1, "here", 0.5, 0]), "state 0, action 1: its probabilities sum to 0.5, not 1"),
        (
            with_transition(["here", 1, "here", -1, 0]),
            "state 0, action 1: a probability is -1; it must be finite and at least 0",
        ),
        ('{"gamma": 1e999, "states": 1, "actions": 1, "transitions": [[0, 0, 0, 1, 0]]}', "gamma .inf. must be"),
        ('{"gamma": 0, "states": 1, "actions": 1, "transitions": [[0, 0, 0, 1, 1e999]]}', "reward of .* is inf"),
    ],
)
def test_a_wrong_json_file_is_named_with_the_place(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_mdp(written(tmp_path / "a.json", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK nothing of the kind", "a.npz: no .npz file"),
        (LISTS | {"num_states": 10**15}, "num_states .1000000000000000. and num_actions .2. must be at least 1"),
        (LISTS | {"num_actions": [2]}, r"num_actions has dtype int64 and shape \[1\]; it must be one number"),
        (LISTS | {"next_state": [1, 0, 2, 0]}, "transition 2: next state 2 is not among the 2"),
        ({"transition": np.ones((1, 1, 1)), "gamma": 0.5}, "it has no reward; what it must have: transition, reward"),
        ({"reward": np.ones((1, 1)), "gamma": 0.5}, "it has no state, action"),
        (LISTS | {"extra": 1}, "unknown: extra"),
        (LISTS | {"gamma": "half"}, "gamma has dtype <U4"),
    ],
)
def test_a_wrong_npz_file_is_named_with_the_array(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_mdp(written(tmp_path / "a.npz", content))


@pytest.mark.parametrize("start", [100, 200, 3_000, 10_000])
def test_a_damaged_npz_file_is_named(tmp_path, start):
    file, transition = tmp_path / "a.npz", np.random.default_rng(0).random((30, 2, 30))
    np.savez_compressed(file, transition=transition, reward=np.ones((30, 2)), gamma=0.5)
    content = bytearray(file.read_bytes())
    content[start : start + 1_800] = bytes(1_800)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz: "):
        read_mdp(file)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("code in a file was run",)


def test_nothing_in_a_file_is_run(tmp_path):
    with pytest.raises(ValueError, match="state holds Python objects, which are not loaded"):
        read_mdp(written(tmp_path / "a.npz", LISTS | {"state": np.array([Bomb()], dtype=object)}))
    with pytest.raises(ValueError, match=r"no \.npz file"):
        read_mdp(written(tmp_path / "b.npz", pickle.dumps(Bomb())))
    with pytest.raises(ValueError, match=r"an MDP is read from .json or .npz, not from .pkl"):
        read_mdp(written(tmp_path / "c.pkl", pickle.dumps(Bomb())))


def npz_announcing(shape):
    """An .npz file whose one array has a large shape and no contents."""
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("transition.npy", header.getvalue())
    return file.getvalue()


def test_a_small_file_that_announces_a_large_array_is_refused_before_memory_is_taken(tmp_path):
    with pytest.raises(ValueError, match="transition announces 8000000000000000000 bytes, and there are 0"):
        read_mdp(written(tmp_path / "a.npz", npz_announcing((10**6, 10**6, 10**6))))


@pytest.mark.parametrize(("name", "content"), [("a.json", DOCUMENT), ("a.npz", LISTS)])
def test_what_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch, name, content):
    path = written(tmp_path / name, content)
    monkeypatch.setattr(files, "available_memory", lambda: 64.0)
    with pytest.raises(MemoryError, match=rf"{name}: it would take up to 0.0 GiB of memory"):
        read_mdp(path)


def test_the_memory_there_is_is_known_here():
    assert 2**26 < memory.available_memory() < 2**50


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_mdp(tmp_path / "none.json")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_beyond_floats_is_refused_with_the_files_name(tmp_path, sign):
    large = sign * 10**400
    wrong = {
        "transition 0: reward": {**DOCUMENT, "actions": 1, "transitions": [["here", 0, "there", 1.0, large]]},
        "transition 0: probability": {**DOCUMENT, "actions": 1, "transitions": [["here", 0, "there", large, 1.0]]},
        "gamma": {**DOCUMENT, "gamma": large},
    }
    for name, content in wrong.items():
        with pytest.raises(ValueError, match=rf"a\.json: {name} has 401 digits; it must be below 1\.8e308 in size\.$"):
            read_mdp(written(tmp_path / "a.json", content))


@pytest.mark.parametrize("name", ["num_states", "num_actions"])
def test_a_count_that_is_not_whole_is_refused(tmp_path, name):
    for count in (2.7, np.nan, np.inf):
        with pytest.raises(ValueError, match=rf"a\.npz: {name} \({count}\) must be a whole number"):
            read_mdp(written(tmp_path / "a.npz", {**LISTS, name: count}))
    assert read_mdp(written(tmp_path / "a.npz", {**LISTS, name: 2.0})).num_states == 2


def test_allowed_names_are_told_in_the_order_of_the_documentation(tmp_path):
    lists = "state, action, next_state, probability, reward, num_states, num_actions, terminated"
    for content, allowed in ((LISTS, lists), (DENSE, "transition, reward, terminal, legal")):
        with pytest.raises(ValueError, match=rf"unknown: colour; allowed are {allowed}\.$"):
            read_mdp(written(tmp_path / "a.npz", {**content, "colour": 1}))
