"""The picture is drawn, is the same each time, and shows what is in the files."""

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.analysis.records import Records
from softbellman.config import Config
from softbellman.report import pictures
from softbellman.report.pictures import Curves, draw_curves, draw_panel, new_figure, panels
from softbellman.study.store import Study
from softbellman.training.metrics import columns

from ..studies import synthetic


def test_a_picture_is_drawn_and_the_same_each_time(cartpole, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    records = [Records.read(cartpole[0])]
    first = draw_curves(records, tmp_path / "new" / "first.png")
    second = draw_curves(records, tmp_path / "second.png")
    assert first.read_bytes() == second.read_bytes()
    pixels = image.imread(first)
    assert pixels.shape[:2] == (768, 1152)
    blue = np.abs(pixels[..., :3] - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=-1) < 0.02
    assert all(part.sum() > 50 for part in (blue[:384, :576], blue[:384, 576:], blue[384:, :576], blue[384:, 576:]))
    assert "<svg" in draw_curves(records, tmp_path / "curves.svg").read_text()


def test_every_line_of_every_operator_is_within_its_panel(tmp_path, monkeypatch):
    study, drawn = synthetic(tmp_path / "study", seeds=[0, 1]), []
    monkeypatch.setattr(pictures, "save_picture", lambda figure, path: drawn.append(figure) or path)
    draw_curves([Records.read(study)], tmp_path / "curves.png")
    for axis in drawn[0].axes:
        low, high = axis.get_ylim()
        values = np.concatenate([np.asarray(line.get_ydata()) for line in axis.lines if len(line.get_xdata()) > 2])
        assert len(axis.lines) >= 6 and low < np.nanmin(values) and np.nanmax(values) < high


def test_what_was_not_measured_is_said_in_its_place(tmp_path):
    figure = new_figure(3, 2)
    axis, nothing = figure.subplots(), np.full(2, np.nan)
    unmeasured = [Curves(0, {0: (np.array([1, 2]), nothing)})]
    assert not draw_panel(axis, panels()["overestimation"], unmeasured, "agent steps")
    assert [text.get_text() for text in axis.texts] == ["not measured"]


def test_forty_eight_operators_look_each_its_own_way():
    assert len({pictures.look(number) for number in range(48)}) == 48


def test_nothing_to_draw_is_an_error(cartpole, walk, tmp_path):
    with pytest.raises(ValueError, match="one picture shows one environment, not gym/CartPole-v1, gym/walk:Walk-v0"):
        draw_curves([Records.read(cartpole[0]), Records.read(walk)], tmp_path / "both.png")
    empty = Study.create(tmp_path / "empty", "gym/X-v0", [ops.maximum()], [0], Config(), {}, [])
    run = empty.runs[0].path
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text(",".join(columns()) + "\n")
    with pytest.raises(ValueError, match="no run has finished a test phase"):
        draw_curves([Records.read(empty)], tmp_path / "empty.png")
    assert not list(tmp_path.glob("*.png"))


def test_runs_without_a_row_are_left_out(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max", "mean"], seeds=[0, 1], phases=2)
    (study.runs[0].path / "metrics.csv").unlink()
    assert draw_curves([Records.read(study)], tmp_path / "curves.png").exists()


def test_a_picture_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    figure, path = new_figure(1, 1), tmp_path / "curves.png"
    path.write_bytes(b"before")
    monkeypatch.setattr(type(figure), "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pictures.save_picture(figure, path)
    assert path.read_bytes() == b"before" and [*tmp_path.iterdir()] == [path]
