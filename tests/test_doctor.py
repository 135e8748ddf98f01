"""The doctor says what works, and what to do where something does not."""

import importlib.metadata
import sys

import pytest

from softbellman import doctor, envs
from softbellman.envs import MissingExtra
from softbellman.extras import EXTRAS


def checks():
    return {check.name: check for check in doctor.examine()}


def test_on_this_machine_everything_that_is_installed_works():
    pytest.importorskip("ale_py")
    found = checks()
    may_lack = {"memory", *(f"extra [{extra}]" for extra in EXTRAS if extra not in ("train", "atari", "tensorboard"))}
    assert all(check.state == "ok" for name, check in found.items() if name not in may_lack)
    assert "atari/breakout starts, observations [4, 84, 84] uint8" in found["Atari"].found
    assert found["MinAtar"].found == "minatar/breakout starts, observations [10, 10, 4] bool; 5 environments"
    assert "gym/CartPole-v1 starts, observations [4] float32" in found["Gymnasium"].found
    assert found["video"].found.startswith("mp4")
    assert "replay of 1,000,000 frames takes 7.1 GB" in found["memory"].found


def test_l31_what_is_missing_says_which_extra_to_install(monkeypatch):
    def missing(name, **_):
        raise MissingExtra("ale-py", "atari")

    monkeypatch.setattr(envs, "make", missing)
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "ale-py" else "1.0")
    found = checks()
    assert found["Atari"] == ("Atari", "-", 'ale-py is not installed; run: pip install "softbellman[atari]"')
    assert found["extra [atari]"].state == "-"
    assert found["extra [atari]"].found == 'without ale-py: pip install "softbellman[atari]"'


def test_a_version_that_is_refused_where_it_is_used_is_not_said_to_be_ok(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.9.2")
    checks = {extra: doctor._extra(extra, EXTRAS[extra]) for extra in ("sb3", "torchrl", "wandb")}
    assert checks["sb3"] == ("extra [sb3]", "ok", "stable-baselines3 2.9.2") and checks["wandb"].state == "ok"
    assert checks["torchrl"].state == "-"
    assert checks["torchrl"].found.startswith("torchrl 2.9.2 is installed, and softbellman was tested with 0.14 and")


def test_what_makes_films_is_installed_by_the_extra_that_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert checks()["video"].found == 'gif only; for mp4: pip install "softbellman[train]"'
    assert "imageio-ffmpeg" in EXTRAS["train"]


def test_a_jax_that_is_broken_is_not_called_missing(monkeypatch):
    def broken():
        raise ImportError("libcublas.so.12: cannot open")

    monkeypatch.setattr(doctor, "require_backend", broken)
    assert ("JAX", "FAIL", "libcublas.so.12: cannot open") in doctor.examine()


def test_a_fault_and_too_little_memory_are_failures(monkeypatch):
    def broken(name, **_):
        raise RuntimeError("the emulator does not start")

    monkeypatch.setattr(envs, "make", broken)
    monkeypatch.setattr(doctor, "available_memory", lambda: 2 * 10**9)
    found = checks()
    assert found["Atari"].state == found["MinAtar"].state == found["memory"].state == "FAIL"
    assert "the emulator does not start" in found["Atari"].found
    assert found["memory"].found.startswith("2.0 GB available")
    assert found["memory"].found.endswith("lower learner.replay_capacity")
