"""The completion scripts: real shells run them, where they are installed."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from steepest.cli import main


@pytest.fixture(scope="module")
def scripts():
    import contextlib
    import io

    found = {}
    for shell in ("bash", "zsh", "fish"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main(["completion", shell]) == 0
        found[shell] = out.getvalue()
    return found


def complete(script: str, *words: str) -> list[str]:
    """What bash proposes for the last word."""
    listed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _steepest; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_flags_and_values(scripts):
    script = scripts["bash"]
    assert complete(script, "steepest", "tr") == ["train"]
    assert complete(script, "steepest", "train", "--earl") == ["--early-stopping"]
    assert complete(script, "steepest", "train", "--loss", "squared_") == ["squared_hinge"]
    assert complete(script, "steepest", "train", "--task", "reg") == ["regress"]
    assert complete(script, "steepest", "train", "--solver", "n") == ["newton_cg"]
    assert complete(script, "steepest", "completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell, scripts):
    if shutil.which(shell) is None:
        assert scripts[shell].count("train") > 20
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([shell, "-n"], input=scripts[shell], text=True, check=False).returncode == 0


def test_descriptions_of_zsh_hold_no_brackets_and_the_first_call_completes(scripts):
    specs = re.findall(r"'(-[^']*)'", scripts["zsh"])
    assert len(specs) > 200
    assert not [spec for spec in specs if "\\" in spec or spec.count("[") != 1 or spec.count("]") != 1]
    assert scripts["zsh"].splitlines()[-1].startswith('if [ "$funcstack[1]" = _steepest ]; then _steepest "$@"')
