"""The command `export`: where the file is, and what can't be."""

import importlib.util

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.torch
def test_export_says_where_the_file_is(trained, softbellman, tmp_path):
    study, _ = trained
    code, out, err = softbellman("export", study, "--to", "torch", "--out", "policy.safetensors")
    assert (code, err) == (0, "")
    assert "best network" in out and "policy.safetensors" in out
    assert (tmp_path / "policy.safetensors").stat().st_size > 1_000


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed")
def test_without_pytorch_one_line_says_what_to_install(trained, softbellman):
    study, _ = trained
    code, out, err = softbellman("export", study, "--to", "torch")
    assert (code, out) == (2, "")
    assert err == 'softbellman: torch is not installed; run: pip install "softbellman[torch]"\n'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--to", "torch"), "nowhere is no run and no study"),
        (("STUDY", "--to", "jit"), "--to"),
        (("STUDY", "--to", "onnx", "--out", "STUDY/study.json/file"), "name another file with --out"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line(words, message, trained, softbellman):
    code, out, err = softbellman("export", *(word.replace("STUDY", str(trained[0])) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
