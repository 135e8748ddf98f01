"""Settings of JAX from outside do not change what training computes; where JAX would not start, it is refused."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import doctor
from softbellman.running import jax_settings
from softbellman.running.jax_settings import OWN, overruled, own_settings, require_backend, require_flags
from softbellman.study.files import read_metrics
from softbellman.training.streams import Role, key

from ..studies import TINY, trained

OTHERS = {
    "enable_x64": True,
    "numpy_dtype_promotion": "strict",
    "threefry_partitionable": False,
    "default_matmul_precision": "highest",
    "disable_jit": True,
    "transfer_guard": "disallow",
    "debug_key_reuse": True,
}
TRAIN = """
import sys
from pathlib import Path
from softbellman.running.group_training import train_group
from softbellman.study.groups import Group
from softbellman.study.store import Study
study = Study(Path(sys.argv[1]))
train_group(study, Group.create(study, study.runs))
"""


def test_settings_made_outside_do_not_hold_within_and_hold_again_afterwards():
    assert OTHERS.keys() == OWN.keys() and overruled() == []
    usual = [jnp.arange(2).dtype, jax.random.normal(jax.random.key(0), 3).tolist()]
    for name, value in OTHERS.items():
        with getattr(jax, name)(value):
            assert len(overruled()) == 1 and f"JAX's {name} is {value} outside" in overruled()[0]
            with own_settings():
                assert overruled() == []
                assert [jnp.arange(2).dtype, jax.random.normal(jax.random.key(0), 3).tolist()] == usual
            assert len(overruled()) == 1


def test_keys_are_of_one_kind_whichever_jax_makes_by_default():
    usual = jax.random.key_data(key(2**32 - 1, Role.ACT)).tolist()
    assert usual == jax.random.key_data(jax.random.fold_in(jax.random.key(2**32 - 1), int(Role.ACT))).tolist()
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_data(key(2**32 - 1, Role.ACT)).tolist() == usual
    offset = jax.config.jax_random_seed_offset
    try:
        jax.config.update("jax_random_seed_offset", 7)
        assert jax.random.key_data(key(2**32 - 1, Role.ACT)).tolist() == usual
    finally:
        jax.config.update("jax_random_seed_offset", offset)


@pytest.mark.parametrize(
    "environment", ["gym/CartPole-v1", "mdp/forest", pytest.param("minatar/breakout", marks=pytest.mark.slow)]
)
def test_a_run_is_the_same_under_settings_made_outside(environment, tmp_path):
    """All at once, of each kind: in a process that inherits them, as a worker does."""
    preset = "quick-minatar" if environment.startswith("minatar/") else "classic-control"
    own = {"recipe.noise": "noisy"} if environment == "mdp/forest" else {}  # updates that draw random numbers, too
    study, _ = trained(tmp_path / "usual", environment, preset, "softmax(5)", [0], TINY | own)
    run = study.runs[0].path.relative_to(study.path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "study.json").write_bytes((study.path / "study.json").read_bytes())
    variables = {f"JAX_{name.upper()}": str(value) for name, value in OTHERS.items()}
    variables |= {
        "JAX_DEFAULT_PRNG_IMPL": "rbg",
        "JAX_RANDOM_SEED_OFFSET": "7",
        "JAX_NUMPY_RANK_PROMOTION": "raise",
        "JAX_LOG_COMPILES": "1",
    }
    subprocess.run(
        [sys.executable, "-c", TRAIN, str(other)], env=os.environ | variables, check=True, capture_output=True
    )
    for name in ("best.safetensors", "final.safetensors"):
        assert (other / run / name).read_bytes() == (study.path / run / name).read_bytes()
    tables = [read_metrics(folder / run / "metrics.csv") for folder in (study.path, other)]
    for name in tables[0].keys() - {"seconds"}:
        np.testing.assert_array_equal(tables[0][name], tables[1][name])


def on_the_command_line(variables, *words):
    process = subprocess.run(
        [sys.executable, "-c", "from softbellman.cli import main; main()", *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["train", "mdp/forest", "--out"], {"JAX_PLATFORMS": "nonsense"}),
        (["train", "gym/CartPole-v1", "--dry-run", "--out"], {"JAX_PLATFORMS": "tpu"}),
        (["compare", "gym/CartPole-v1", "--out"], {"JAX_PLATFORMS": "nonsense"}),
        (["compare", "minatar/breakout", "--dry-run", "--out"], {"JAX_PLATFORMS": "", "JAX_PLATFORM_NAME": "tpu"}),
        (["train", "gym/CartPole-v1", "--out"], {"XLA_FLAGS": "--nonsense=1"}),
    ],
)
def test_where_jax_would_not_start_one_line_says_what_to_set_and_nothing_is_written(words, variables, tmp_path):
    code, out, errors = on_the_command_line(variables, *words, str(tmp_path / "study"))
    assert (code, out) == (2, "") and os.listdir(tmp_path) == []
    name, value = list(variables.items())[-1]
    remedy = r"correct it, or unset it" if name == "XLA_FLAGS" else r"there is \w+ here: unset it"
    assert re.fullmatch(rf"softbellman: {name} \({value}\) can't be used.*; {remedy}\n", errors)


def test_the_doctor_says_it_too():
    code, out, errors = on_the_command_line({"JAX_PLATFORMS": "nonsense"}, "doctor")
    assert (code, errors) == (1, "") and re.search(
        r"^FAIL  JAX +JAX_PLATFORMS \(nonsense\) can't be used", out, re.MULTILINE
    )
    code, out, errors = on_the_command_line({"JAX_ENABLE_X64": "maybe"}, "doctor")
    assert (code, errors) == (1, "") and re.search(r"^FAIL  JAX .*'maybe'.*JAX_ENABLE_X64", out, re.MULTILINE)


def test_a_platform_whose_package_is_missing_is_named(monkeypatch):
    """JAX then fails without a word."""

    def fail():
        raise AssertionError

    monkeypatch.setattr(jax, "devices", fail)
    monkeypatch.setattr(jax_settings, "_probed", lambda _: ("cpu", ""))
    with pytest.raises(ValueError, match=r"JAX_PLATFORMS \(cpu\) can't be used; there is cpu here: unset it"):
        require_backend()
    monkeypatch.setattr(jax_settings, "_probed", lambda _: ("", "many words"))
    with pytest.raises(ValueError, match=r"can't be used; no platform starts here"):
        require_backend()


@pytest.mark.parametrize(
    ("flags", "said"), [("--nonsense=1", "Unknown flag in XLA_FLAGS"), ("nonsense", 'Could not open file "nonsense"')]
)
def test_flags_that_would_end_the_process_are_refused(flags, said):
    with pytest.raises(ValueError, match=rf"XLA_FLAGS \({flags}\) can't be used: {said}.*; correct it, or unset it"):
        require_flags(flags)


def test_flags_that_xla_knows_will_do(monkeypatch):
    require_flags("--xla_cpu_enable_fast_math=false")
    monkeypatch.setattr(jax_settings, "_probed", lambda _: pytest.fail("no process is needed"))
    require_flags("")


def test_the_doctor_tells_what_is_set_outside(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        monkeypatch.delenv(name)
    assert jax_settings.outside_variables() == [] and [check.name for check in doctor._jax()] == ["JAX"]
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("JAX_DEFAULT_PRNG_IMPL", "rbg")
    with jax.enable_x64(True):
        _, own, taken = doctor._jax()
    assert own[1:] == ("-", "JAX's enable_x64 is True outside, and training has its own: it trains in 32 bits")
    assert taken[1:] == ("ok", "taken as they are: JAX_LOG_COMPILES=1")


def test_what_python_prints_when_it_starts_is_no_platform(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('patched', flush=True)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert jax_settings._probed({"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"})[0] == "cpu"
    assert jax_settings._probed({"PYTHONPATH": path, "JAX_PLATFORMS": "nowhere"})[0] == ""
