"""A fault is placed in the user's file that softbellman called, and nowhere else."""

import importlib.util

import pytest

import softbellman
from softbellman import operators as ops
from softbellman.faults import UsersFault, faults_placed, in_a_line, users_place
from softbellman.operators.contract import require_shapes
from softbellman.simulation import measure


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


# A function of a user's that softbellman calls as it draws noise
def users_noise(path, body, head=""):
    module = users_module(path, f"{head}def noise(rng, shape):\n{body}")
    return lambda: measure([ops.maximum()], [0.0, 0.0], noise=module.noise)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    return {}['x']\n", "KeyError: 'x' (PLACE, line 2)"),
        ("    raise RuntimeError('\\n\\n  first\\nsecond')\n", "RuntimeError: first second (PLACE, line 2)"),
        ("    raise RuntimeError\n", "RuntimeError (PLACE, line 2)"),
        ("    raise SystemExit('over')\n", "SystemExit: over (PLACE, line 2)"),
        ("    raise ValueError('of 3')\n", "ValueError: of 3 (PLACE, line 2)"),
        ("    exec('x = (')\n", "SyntaxError: '(' was never closed (PLACE, line 2)"),
        ("    import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package' (PLACE, line 2)"),
        ("    try: int('x')\n    except ValueError as e: raise KeyError(1) from e\n", "KeyError: 1 (PLACE, line 3)"),
        ("    import json\n    json.loads('{')\n", "JSONDecodeError: Expecting property name"),
        ("    import numpy\n    return numpy.zeros(2) @ numpy.zeros(3)\n", "PLACE, line 3"),
    ],
)
def test_what_a_users_code_raises_is_said_in_one_line_with_its_place_once(tmp_path, body, said):
    path = tmp_path / "noise.py"
    error = error_of(users_noise(path, body))
    assert isinstance(error, UsersFault) and isinstance(error, ValueError) and error.__cause__ is not None
    assert said.replace("PLACE", str(path)) in str(error) and "\n" not in str(error)
    assert str(error).count("noise.py") == 1
    assert in_a_line(error) == str(error)  # told once, however often it is told


def test_a_message_without_end_is_cut(tmp_path):
    error = error_of(users_noise(tmp_path / "noise.py", "    raise RuntimeError('more ' * 10_000)\n"))
    assert len(str(error)) < 800 and str(error).endswith(f"more ... ({tmp_path / 'noise.py'}, line 2)")


def test_an_installed_package_of_a_users_is_the_users_and_one_that_we_need_is_not(tmp_path):
    installed = tmp_path / "lib" / "site-packages"
    (installed / "users_package").mkdir(parents=True)
    path = installed / "users_package" / "noise.py"
    assert users_place(error_of(users_noise(path, "    return 1 / 0\n"))) == f"{path}, line 2"
    for name in ("numpy", "scipy", "jaxlib"):  # the last is needed by one that is needed
        code = compile("def noise(rng, shape):\n    return 1 / 0\n", str(installed / name / "part.py"), "exec")
        space = {}
        exec(code, space)
        error = error_of(lambda noise=space["noise"]: measure([ops.maximum()], [0.0], noise=noise))
        assert isinstance(error, ZeroDivisionError) and users_place(error) is None


def test_a_library_called_by_a_user_is_no_place_but_the_line_that_called_it(tmp_path):
    pytest.importorskip("jax")
    source = "from softbellman import operators as ops\nimport jax\n@ops.operator\nclass Bad(ops.Operator):\n"
    source += "    def policy(self, row):\n        return jax.vmap(lambda z: jax.numpy.dot(z, z[:1]))(row.z)\n"
    path = tmp_path / "bad_on_jax.py"
    bad = users_module(path, source).Bad()
    error = error_of(lambda: require_shapes(bad, 3, "jax"))
    assert "TypeError: dot_general requires contracting dimensions" in str(error)
    assert str(error).endswith(f"({path}, line 6)") and users_place(error) == f"{path}, line 6"


def test_what_a_callback_of_jax_raises_at_some_values_only_names_its_line(tmp_path):
    jax = pytest.importorskip("jax")
    source = "import jax, numpy\ndef host(z):\n    if z.min() < -50: raise KeyError('deep')\n    return z\n"
    source += "def noise(rng, shape):\n    struct = jax.ShapeDtypeStruct((2,), 'float32')\n"
    source += "    z = jax.numpy.zeros(2) - 100 * (shape[0] > 5)\n"
    source += (
        "    return numpy.zeros(shape) + numpy.asarray(jax.jit(lambda z: jax.pure_callback(host, struct, z))(z))\n"
    )
    path = tmp_path / "called_back.py"
    noise = users_module(path, source).noise
    measure([ops.maximum()], [0.0, 0.0], noise=noise, trials=5)
    error = error_of(lambda: measure([ops.maximum()], [0.0, 0.0], noise=noise, trials=6))
    assert isinstance(error.__cause__, jax.errors.JaxRuntimeError)
    assert str(error) == f"JaxRuntimeError: KeyError: 'deep' ({path}, line 3)"


def test_a_message_of_ours_about_a_users_fault_keeps_its_words(tmp_path):
    path, space = tmp_path / "noise.py", {"fails": users_noise(tmp_path / "noise.py", "    return {}['x']\n")}
    source = (
        "def ours():\n  try:\n    fails()\n  except ValueError as error:\n    raise ValueError('no noise') from error\n"
    )
    exec(compile(source, softbellman.__file__, "exec"), space)
    assert in_a_line(error_of(space["ours"])) == f"no noise ({path}, line 2)"
    error = error_of(faults_placed()(space["ours"]))
    assert type(error) is UsersFault and str(error) == f"no noise ({path}, line 2)"


def test_what_is_nobodys_passes_as_it_is():
    error = error_of(lambda: faults_placed()(int)("x"))
    assert type(error) is ValueError
    assert in_a_line(error) == "ValueError: invalid literal for int() with base 10: 'x'"
    assert in_a_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    error = error_of(lambda: measure([ops.maximum()], [0.0], scale=-1.0))
    assert type(error) is ValueError and users_place(error) is None
    assert isinstance(error_of(lambda: measure([ops.maximum()], [0.0, 0.0], noise=None)), TypeError)


def test_an_exception_raised_from_itself_or_in_a_circle_is_no_endless_search():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert users_place(first) is None
    second.__cause__ = second
    assert in_a_line(first) == "ValueError: first"
