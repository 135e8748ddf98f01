"""Specs of parts: round trips, and every fault told of."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from softbellman.config.arms import parse_arm
from softbellman.gaps import AdvantageGap, Gap
from softbellman.learning.parts.copies import Past
from softbellman.learning.parts.estimates import Categorical, Ensemble, Quantiles
from softbellman.learning.parts.sampling import Prioritised
from softbellman.learning.parts.table import ROLES, part
from softbellman.learning.parts.tightening import Tightening
from softbellman.learning.settings import RecipeSettings
from softbellman.operators.spec import name_and_arguments

FIELDS = [field.name for field in dataclasses.fields(RecipeSettings)]

SPECS = {
    "gap": ["none", "gap(0.9)", "gap(0.9, 1)", "persistent(0.5)", "persistent_pfrl(0.5)", "persistent_q(0.1)"],
    "target": ["latest", "past(10)", "past(3, min)"],
    "estimate": ["value", "quantiles(51)", "categorical(51, -10, 10)", "ensemble(5)", "ensemble(4, mix)"],
    "head": ["linear", "duelling"],
    "noise": ["none", "noisy", "noisy(0.1)"],
    "scale": ["raw", "popart(0.0003)"],
    "sampling": ["uniform", "prioritised", "prioritised(0.5)", "prioritised(0.6, 0.4, 1, 5000)"],
    "tightening": ["none", "tightening", "tightening(2, 0.5)"],
    "exploration": ["epsilon", "policy(mellowmax(5))", "policy(double(max))"],
    "risk": ["neutral", "cvar(0.25)"],
    "controller": [
        *("fixed", "cooling", "cooling(2)", "cooling(1, 5)", "spread_cooling", "power", "power(0.1, 1)"),
        *("noise", "noise(1)", "noise(0.75, 0.01)", "match", "match(0.01)", "loop", "loop(0.75, 0.001, 0.01)"),
    ],
}


class Wide(Gap):
    """A gap of one's own."""


@pytest.mark.parametrize(("role", "spec"), [(role, spec) for role, specs in SPECS.items() for spec in specs])
def test_a_spec_reads_back_to_itself(role, spec):
    made = part(role, spec)
    assert str(made) == spec and part(role, str(made)) == made and hash(part(role, spec)) == hash(made)


@pytest.mark.parametrize(
    ("role", "made", "spec"),
    [
        ("gap", AdvantageGap(np.float64(0.3), np.float64(10)), "gap(0.3, 10)"),
        ("gap", AdvantageGap(np.float32(0.9)), "gap(0.9)"),
        ("target", Past(np.int64(5)), "past(5)"),
        ("estimate", Quantiles(np.int64(51)), "quantiles(51)"),
        ("estimate", Categorical(np.int32(51), np.float64(-1e30), 10), "categorical(51, -1e30, 10)"),
        ("estimate", Ensemble(np.uint8(5)), "ensemble(5)"),
        ("sampling", Prioritised(updates=np.int64(5_000)), "prioritised(0.6, 0.4, 1, 5000)"),
        ("tightening", Tightening(np.int64(2)), "tightening(2)"),
    ],
)
def test_a_part_made_with_numbers_of_numpy_has_the_spec_of_one_made_with_pythons(role, made, spec):
    assert str(made) == spec and part(role, spec) == made


def test_every_role_is_a_field_whose_default_is_its_first_part():
    fields = {name: getattr(RecipeSettings(), name) for name in ROLES}
    for role, spec in fields.items():
        assert type(part(role, spec)) is next(iter(ROLES[role].factories.values()))
        assert [name for name, factory in ROLES[role].factories.items() if isinstance(factory, type)] == [
            vars(factory)["name"] for factory in ROLES[role].factories.values() if isinstance(factory, type)
        ]


def test_a_part_of_ones_own_is_found_by_its_reference():
    made = part("gap", f"{__name__}:Wide")
    assert isinstance(made, Wide) and str(made) == f"{__name__}:Wide"


@pytest.mark.parametrize(
    ("role", "spec", "message"),
    [
        ("gap", "gapp(0.9)", "there is no 'gapp'; did you mean gap"),
        ("gap", "gap", "gap takes alpha, ceiling=inf, and was given none"),
        ("gap", "gap(0.9, 1, 2)", "was given"),
        ("gap", "gap(2)", "alpha (2) must be in 0 .. 1"),
        ("gap", "gap(max)", "gap(max)"),
        ("gap", "gap(0.9", "neither a name nor name(arguments)"),
        ("gap", "", "neither a name nor name(arguments)"),
        ("gap", "past(10, mean)", "there is no 'past'"),
        ("estimate", "categorical(51)", "categorical takes size, low, high"),
        ("estimate", "quantiles(x)", "Unknown operator 'x'"),
        ("exploration", "policy(5)", "is no operator"),
        ("gap", "builtins:dict", "made a dict, and must make a Gap"),
        ("gap", "math:pi", "pi is a float, and must make a Gap"),
        ("gap", "no_such_module:Gap", "cannot import no_such_module"),
    ],
)
def test_faults_are_told_of(role, spec, message):
    with pytest.raises(ValueError, match=f"recipe.{role} ") as told:
        part(role, spec)
    assert message in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("role", "spec", "message"),
    [
        ("estimate", "categorical(51, -inf, 10)", "low (-inf) must be finite in float32"),
        ("estimate", "categorical(51, -10, inf)", "high (inf) must be finite in float32"),
        ("estimate", "categorical(51, -1e39, 1e39)", "low (-1e+39) must be finite in float32"),
        ("estimate", "categorical(51, nan, 1)", "low (nan) must be finite in float32"),
        ("estimate", "categorical(51, -3e38, 3e38)", "high less low (6e+38) must be finite in float32"),
        ("estimate", "categorical(51, 1, 1.00000001)", "low (1) must be below high (1.00000001), in float32 too"),
        ("estimate", "transformed(1e-50)", "slope (1e-50) must be above 0 and at most 1 in float32"),
        ("estimate", f"categorical(51, 0, {10**40})", f"high ({10**40}) must be finite in float32"),
        ("noise", f"noisy({10**400})", f"the size of the noise ({10**400}) must be above 0, and finite in float32"),
        ("noise", "noisy(inf)", "the size of the noise (inf) must be above 0, and finite"),
        ("noise", "noisy(1e39)", "the size of the noise (1e+39) must be above 0, and finite in float32"),
        ("noise", "noisy(nan)", "the size of the noise (nan) must be above 0, and finite"),
        ("scale", "popart(1e-46)", "rate (1e-46) must be above 0 and at most 1 in float32"),
        ("tightening", "tightening(4, 1e39)", "penalty (1e+39) must be above 0, and finite in float32"),
        ("tightening", "tightening(4, inf)", "penalty (inf) must be above 0, and finite"),
        ("risk", "cvar(1e-50)", "level (1e-50) must be above 0 and at most 1 in float32"),
        ("controller", "cooling(1e39)", "scale (1e+39) must be above 0, and finite in float32"),
        ("controller", "cooling(1, 1e39)", "k0 (1e+39) must be finite in float32"),
        ("controller", "power(1e-50, 2)", "c (1e-50) must be above 0, and finite in float32"),
        ("controller", "power(1, 1e300)", "p (1e+300) must be above 0, and finite in float32"),
        ("controller", "spread_cooling(inf)", "eta (inf) must be above 0, and finite"),
        ("controller", "noise(1e39)", "kappa (1e+39) must be above 0, and finite in float32"),
        ("controller", "match(1e-50)", "rate (1e-50) must be above 0 and at most 1 in float32"),
        ("controller", "loop(0.75, 0.1, 1e-50)", "smoothing (1e-50) must be above 0 and at most 1 in float32"),
    ],
)
def test_numbers_that_float32_cannot_hold_are_refused(role, spec, message):
    with pytest.raises(ValueError, match=f"recipe.{role} ") as told:
        part(role, spec)
    assert str(told.value).endswith(message)


@pytest.mark.parametrize("spec", ["categorical(3, -1.7e+38, 1.7e+38)", "categorical(51, 0, 1e-30)"])
def test_a_support_of_numbers_that_float32_can_hold_is_finite_and_rises(spec):
    support = part("estimate", spec).support
    assert np.isfinite(support).all() and (np.diff(support) > 0).all()


def test_the_page_of_variants_has_every_part_with_a_spec_that_reads():
    """Each row's spec is read as that of an arm is; each row names a test file that is there."""
    page = (Path(__file__).parents[3] / "docs" / "variants.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and line.count(" | ") == 5][1:]
    seen = set()
    for row in rows:
        for spec in re.findall(r"`([^`]+=[^`]+)`", row[3]):
            changes = parse_arm(f"max, {spec}" if spec.split("=")[0] in FIELDS else spec).changes
            assert changes, spec
            for path, value in changes:
                role = path.removeprefix("recipe.")
                if role in ROLES:
                    seen.add(f"{role} {name_and_arguments(str(value))[0]}")
                    part(role, value)
    plain = {f"{role} {next(iter(ROLES[role].factories))}" for role in ROLES}
    assert {f"{role} {name}" for role in ROLES for name in ROLES[role].factories} - plain == seen | {
        "exploration policy"
    }
    deviations = (Path(__file__).parents[3] / "docs" / "deviations.md").read_text()
    assert all(f"| {number} |" in deviations for row in rows for number in re.findall(r"D\d+", row[4]))
    tests = Path(__file__).parents[2]
    assert all((tests / path).exists() for row in rows for path in re.findall(r"`([^`]+)`", row[5]))
