"""The card of a run: a folder that says what it is, and is a study that the commands take."""

import csv
import json
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import softbellman as sb
from softbellman.config import replaced
from softbellman.report import account
from softbellman.report.card import write_card
from softbellman.running import play
from softbellman.study.files import load_params, save_params
from softbellman.study.store import Study, find_run
from softbellman.study.writer import write_status
from softbellman.training.metrics import columns

from ..policies.studies import drawn
from ..studies import synthetic

NEEDS = "It needs code that is not in this folder, on PYTHONPATH, and runs it when it is loaded"


def metadata(readme):
    """The metadata of a card: every scalar by its dotted path, read without a package for YAML."""
    _, head, body = readme.read_text().split("---\n", 2)
    found = dict(re.findall(r"^\s*-?\s*(\w+): (.+)$", head, flags=re.MULTILINE))
    return {name: json.loads(value) if value[:1] in '"-0123456789' else value for name, value in found.items()}, body


@pytest.fixture(scope="module")
def card(cartpole, tmp_path_factory):
    """The card of a run of two, of a copy of the study."""
    folder = tmp_path_factory.mktemp("card")
    study = Study(shutil.copytree(cartpole[0].path, folder / "study"))
    return study, study.runs[1], write_card(study, study.runs[1], folder / "card").parent


def test_the_folder_has_all_that_a_hub_takes(card):
    folder = card[2]
    own = Study(folder)
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    inside = own.runs[0].path.relative_to(folder)
    assert names == sorted(
        ["README.md", "operator.json", "replay.mp4", "results.csv", "study.json"]
        + [f"{inside}/{name}" for name in ("best.safetensors", "final.safetensors", "metrics.csv", "status.json")]
    )
    assert not list(folder.parent.glob(".card-*"))


def test_its_metadata_are_those_that_hubs_read(card):
    study, run, folder = card
    told, _ = metadata(folder / "README.md")
    scores = study.metrics()["test_return"][study.metrics()["seed"] == run.seed]
    assert told["library_name"] == "softbellman" and told["pipeline_tag"] == "reinforcement-learning"
    assert told["name"] == "test score, the last of 2 test phases of training" and told["type"] == "mean_reward"
    assert told["value"] == pytest.approx(scores[-1], abs=1e-4)
    text = (folder / "README.md").read_text()
    assert '- "double(softmax(5))"' in text and '- "gym/CartPole-v1"' in text and "verified: false" in text


def test_it_says_the_scores_with_their_intervals_and_what_they_are_of(card):
    _, body = metadata(card[2] / "README.md")
    (row,) = csv.DictReader((card[2] / "results.csv").read_text().splitlines())
    shown = f"| double(softmax(5)) | 2 of 2 | {float(row['final']):.2f} | "
    assert shown + f"{float(row['final_low']):.2f} to {float(row['final_high']):.2f} |" in body
    assert "The study that it is from, 2 seeds each" in body and "flatters where the network was chosen by it" in body
    assert re.search(r"A game, score [\d.]+: \[replay.mp4\]|The first [\d,]+ agent steps of a game", body)


def test_the_operator_and_its_laws_are_in_it(card):
    facts = json.loads((card[2] / "operator.json").read_text())
    assert facts["operator"] == facts["arm"] == "double(softmax(5))" and facts["laws"]["non_expansion"] is True


def test_it_is_a_study_of_one_run_that_the_commands_take(card):
    study, run, folder = card
    own, found = find_run(folder)
    options = {"episodes": 2, "epsilon": 0.0, "seed": 4}
    assert play.evaluate(own, found, **options).scores.tolist() == play.evaluate(study, run, **options).scores.tolist()
    assert own.seeds == [run.seed] and own.config == study.config
    ours, _ = load_params(found.path / "best.safetensors")
    theirs, _ = load_params(run.path / "best.safetensors")
    assert all(np.array_equal(ours[layer][name], theirs[layer][name]) for layer in ours for name in ours[layer])


def test_it_names_no_place_of_its_user(tmp_path, monkeypatch):
    place = tmp_path / "home" / "someone" / "study"
    study = synthetic(place, operators=["max"], seeds=[0])
    flags = {"xla_flags": f"--xla_dump_to={place}/dump --xla_cpu_enable_fast_math=1"}
    made = study.record["provenance"] | flags
    later = {"provenance": made | {"versions": {"softbellman": "9.1"}}}
    study.update(command=["compare", "--out", str(place)], provenance=made, launches=[later])
    facts = {"version": "9.1", "revision": None, "agent_steps": 2_000, "updates": 500}
    write_status(study.runs[0], "failed", reason=f"OSError: no {place}/maze.json", **facts)

    def refuse(*_, **__):
        raise ValueError(f"no '{place}/my maps/4x4.json' nor {place}/maze.json")

    for name in ("softbellman.running.play.watch", "softbellman.policies.policy.load"):
        monkeypatch.setattr(name, refuse)
    folder = carded(study, study.runs[0], tmp_path / "card")
    assert all(b"someone" not in file.read_bytes() for file in folder.rglob("*") if file.is_file())
    text, own = (folder / "README.md").read_text(), Study(folder)
    told = r"ValueError: no '4x4\.json' nor maze\.json \(test_card\.py, line \d+\)\.$"
    assert len(re.findall(f"^(?:Not filmed|.* failed where this card was made): {told}", text, re.MULTILINE)) == 2
    assert own.record["provenance"]["xla_flags"] == "--xla_dump_to=dump --xla_cpu_enable_fast_math=1"
    standing = json.loads((own.runs[0].path / "status.json").read_text())
    assert standing == {"state": "failed", **facts}
    assert account.made_with(own) == account.made_with(study) and "softbellman 9.1" in account.made_with(own)
    assert f"Its study was made with {account.made_with(study)}." in text


def test_it_says_which_options_of_the_environment_are_in_it(tmp_path):
    study = synthetic(tmp_path / "study", ["gym/nobody:Knows-v0"], ["max"], [0])
    text = (carded(study, study.runs[0], tmp_path / "none") / "README.md").read_text()
    assert "Options of the environment" not in text
    study.take_config(replaced(study.config, "env.options", {"size": 5, "map": "/home/someone/map.json"}), [])
    text = (carded(study, study.runs[0], tmp_path / "card") / "README.md").read_text()
    assert "Options of the environment are in it as they were given: `map=/home/someone/map.json size=5`." in text


@pytest.mark.parametrize("linked", [True, False])
def test_an_empty_directory_is_filled_where_it_is(tmp_path, linked):
    """It may be a link, or mounted, or its parent may be one that can't be written."""
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0])
    (tmp_path / "there").mkdir()
    before, out = (tmp_path / "there").stat().st_ino, tmp_path / ("link" if linked else "there")
    if linked:
        out.symlink_to("there")
    folder = carded(study, study.runs[0], out)
    assert Study(folder).runs[0].path.is_dir() and (tmp_path / "there").stat().st_ino == before
    assert sorted(each.name for each in (tmp_path / "there").iterdir()) == [
        *("README.md", "operator.json", "results.csv", "runs", "study.json")
    ]


def blocks(folder, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_code_of_the_card_runs_in_its_folder(card, tmp_path, monkeypatch):
    _, run, made = card
    folder = shutil.copytree(made, tmp_path / "downloaded")
    monkeypatch.chdir(folder)
    (code,) = blocks(folder, "python")
    assert "# obs: float32 [4]\n" in code
    for obs in np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32):
        exec(code, names := {"obs": obs})
        assert names["action"] == sb.load(run.path).act(obs)
    assert names["policy"].run.path.resolve().is_relative_to(folder.resolve()) and names["policy"].network == "best"
    (commands,) = blocks(folder, "bash")
    install, *own = commands.splitlines()
    assert install == 'pip install "softbellman[train]"' and [line.split()[1] for line in own] == ["evaluate", "watch"]
    for line in own:
        words = [sys.executable, "-m", *line.split()]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr


OWN = """
    import gymnasium
    import numpy as np

    class Doors(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (3, 4, 2), np.uint8)
        action_space = gymnasium.spaces.Discrete(3, start=1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros((3, 4, 2), np.uint8), {"action_mask": np.array([0, 1, 1], np.int8)}

        def step(self, action):
            return np.ones((3, 4, 2), np.uint8), 1.0, False, False, {"action_mask": np.array([0, 1, 1], np.int8)}
"""


@pytest.mark.parametrize(
    ("environment", "options", "told", "extra"),
    [
        ("minatar/breakout", {"preset": "demo-minatar"}, "policy.act(obs)  # obs: bool [10, 10, 4]", "train"),
        ("mdp/doors", {}, "policy.act(obs, legal=legal)  # obs: float32 [4]; legal: bool [3]", "train"),
        (
            "of_a_user:Doors",
            {"values": {"network.kind": "mlp"}},
            "policy.act(obs, legal=legal)  # obs: uint8 [3, 4, 2]; legal: bool [3]",
            "train",
        ),
        ("atari/breakout", {"preset": "demo-atari"}, "policy.act(obs)  # obs: uint8 [4, 84, 84]", "atari"),
    ],
)
def test_what_it_says_of_observations_is_what_the_policy_takes(
    environment, options, told, extra, tmp_path, monkeypatch
):
    if extra == "atari":
        pytest.importorskip("ale_py")
    (tmp_path / "of_a_user.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("softbellman.report.card._film", lambda *_: (None, "not asked for"))
    study = drawn(tmp_path, environment, **options)
    row = ",".join("1" for _ in columns())
    (study.runs[0].path / "metrics.csv").write_text(f"{','.join(columns())}\n{row}\n")
    folder = write_card(study, study.runs[0], tmp_path / "card").parent
    (code,), (commands,) = blocks(folder, "python"), blocks(folder, "bash")
    assert f"{told}\n" in code and f'pip install "softbellman[{extra}]"\n' in commands
    monkeypatch.chdir(folder)
    kind, shape = re.search(r"obs: (\w+) \[([\d, ]+)\]", code).groups()
    exec(code, names := {"obs": np.zeros([int(n) for n in shape.split(",")], kind), "legal": [False, True, False]})
    assert type(names["action"]) is int
    if "legal" in told:
        assert names["action"] == names["policy"].first_action + 1


def test_where_it_can_not_be_loaded_the_card_says_why_and_promises_nothing(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0])
    folder = carded(study, study.runs[0], tmp_path / "card")
    assert blocks(folder, "python") == []
    told = re.search("^`sb.load` of it in Python failed .*$", (folder / "README.md").read_text(), re.MULTILINE)[0]
    assert "network.kind nature_cnn takes observations of" in told


def carded(study, run, out, **options):
    """The card of a run of a synthetic study, with parameters that nobody trained."""
    for name in ("best", "final"):
        params = {"q": {"w": np.zeros((2, 3), np.float32)}}
        save_params(run.path / f"{name}.safetensors", params, 1_000 if name == "best" else 2_000, 3.5)
    return write_card(study, run, out, **options).parent


def test_what_can_not_be_filmed_is_said(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0], random=0.5)
    folder = carded(study, study.runs[0], tmp_path / "card", network="final")
    text = (folder / "README.md").read_text()
    assert "Not filmed: network.kind nature_cnn takes observations of" in text and not (folder / "replay.mp4").exists()
    assert "its final network,\nof agent step 2,000" in text
    assert "| random actions | - | 0.50 over 2 games | - |" in text


def test_one_seed_has_no_interval_and_a_run_under_way_is_called_so(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0], ends={("max", 0): "running"})
    text = (carded(study, study.runs[0], tmp_path / "card") / "README.md").read_text()
    assert "| max | 1 of 1 | " in text and " | - |\n" in text
    assert "No run of the study had finished yet" in text


def test_a_run_without_scores_claims_none(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0, 1])
    write_status(study.runs[0], "diverged")
    told, body = metadata(carded(study, study.runs[0], tmp_path / "card") / "README.md")
    assert "mean_reward" not in told.values() and "This run scored" not in body and "| max | 1 of 2 | " in body


def test_a_label_that_looks_like_a_number_stays_a_text(tmp_path):
    arm = "1.5=softmax(5), learner.gamma=0.5"
    study = synthetic(tmp_path / "study", operators=["max", arm], seeds=[0, 1])
    folder = carded(study, study.runs[2], tmp_path / "card")
    text = (folder / "README.md").read_text()
    assert '- "1.5"\n' in text and "| 1.5 | 2 of 2 | " in text
    assert Study(folder).arms.keys() == {study.runs[2].operator}
    assert json.loads((folder / "operator.json").read_text())["arm"] == arm


def test_it_tells_the_settings_of_its_arm_and_how_far_its_own_run_has_come(tmp_path):
    arm = "a=max, learner.learning_rate=0.0001, learner.reward_scale=0.1, returns=3, exploration=policy(softmax(5))"
    study = synthetic(tmp_path / "study", operators=["max", arm], seeds=[0], ends={("a", 0): "stopped"})
    text = (carded(study, study.runs[1], tmp_path / "card") / "README.md").read_text()
    told = dict(re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE))
    assert "with learning rate 0.0001," in told["learner"]
    assert told["parts of the learner"] == "returns=3, exploration=policy(softmax(5))"
    assert told["exploration"].startswith("policy(softmax(5)), but for epsilon 1 to 0.1 over ")
    assert told["rewards"] == "enter learning times 0.1, then clipped to ±1; scores are raw"
    assert "; done so far: 300,000 agent steps, " in told["budget of a run"] and "software" in told
    plain = (carded(study, study.runs[0], tmp_path / "plain") / "README.md").read_text()
    assert "done so far" not in plain and "parts of the learner" not in plain and "| exploration | epsilon 1 " in plain


def test_code_that_the_folder_lacks_is_named(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from softbellman.operators import softmax\n\ndef hot():\n    return softmax(3.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    study = synthetic(tmp_path / "study", ["mine:maze"], operators=["max"], seeds=[0])
    text = (carded(study, study.runs[0], tmp_path / "card") / "README.md").read_text()
    assert f"{NEEDS}: `mine:maze`." in text


def test_code_of_the_recipe_is_named_too(tmp_path, monkeypatch):
    (tmp_path / "ours.py").write_text(
        "from softbellman.gaps import as_gap\n\ndef share(scale):\n    return as_gap(f'gap({scale})')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0])
    study.take_config(replaced(study.config, "recipe.gap", "ours:share(0.25)"), [])
    text = (carded(study, study.runs[0], tmp_path / "card") / "README.md").read_text()
    assert f"{NEEDS}: `ours:share`." in text


def test_a_run_whose_rows_are_lost_has_no_card(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0])
    table = study.runs[0].path / "metrics.csv"
    table.write_text(table.read_text().splitlines()[0] + "\n")
    with pytest.raises(ValueError, match=r"metrics.csv has no row: without a test phase there is nothing to tell"):
        carded(study, study.runs[0], tmp_path / "card")
    assert not (tmp_path / "card").exists()


def test_nothing_is_overwritten_and_nothing_half_made_is_left(tmp_path, monkeypatch):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0])
    out = tmp_path / "card"
    with pytest.raises(ValueError, match=r"best.safetensors is not there: a run saves it with its first test phase"):
        write_card(study, study.runs[0], out)
    assert not out.exists()
    monkeypatch.setattr("softbellman.report.card.write_table", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        carded(study, study.runs[0], out)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["study"]
    monkeypatch.undo()
    carded(study, study.runs[0], out)
    before = (out / "README.md").stat().st_mtime_ns
    with pytest.raises(ValueError, match="is there already and nothing is overwritten; name another directory"):
        write_card(study, study.runs[0], out)
    assert (out / "README.md").stat().st_mtime_ns == before
