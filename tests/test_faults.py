"""A fault is placed in the user's file that softbellman called, and nowhere else."""

import importlib.util

import pytest

from softbellman.faults import users_place


def users_module(path, source):
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(function):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - each test says which
        function()
    return caught.value


def test_a_users_operator_is_named(tmp_path):
    source = "from softbellman import operators as ops\n@ops.operator\nclass Bad(ops.Operator):\n"
    source += "    def policy(self, row):\n        return row.zz\n"
    module = users_module(tmp_path / "bad_operator.py", source)
    error = error_of(lambda: module.Bad()([1.0, 2.0]))
    assert isinstance(error, AttributeError)
    assert users_place(error) == f"{tmp_path / 'bad_operator.py'}, line 5"


def test_a_users_line_is_named_where_softbellman_raises_beneath_it(tmp_path):
    source = "from softbellman import operators as ops\n@ops.operator\nclass Bad(ops.Operator):\n"
    source += "    def policy(self, row):\n        return ops.softmax(-1.0).policy(row)\n"
    module = users_module(tmp_path / "negative_tau.py", source)
    assert users_place(error_of(lambda: module.Bad()([1.0, 2.0]))) == f"{tmp_path / 'negative_tau.py'}, line 5"


def test_a_syntax_error_is_placed_where_it_stands(tmp_path):
    error = error_of(lambda: users_module(tmp_path / "half.py", "x = 1\ny = (\n"))
    assert users_place(error) == f"{tmp_path / 'half.py'}, line 2"


def test_a_script_that_calls_softbellman_is_no_place(tmp_path):
    source = "from softbellman import operators as ops\ndef call():\n    ops.softmax(-1.0)\n"
    module = users_module(tmp_path / "caller.py", source)
    assert users_place(error_of(module.call)) is None


def test_a_fault_of_python_code_alone_has_no_place():
    assert users_place(error_of(lambda: int("x"))) is None
