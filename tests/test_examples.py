"""The worked examples run, and show what they claim, at a size that takes seconds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def personal_spam():
    spec = importlib.util.spec_from_file_location("personal_spam", EXAMPLES / "personal_spam.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["personal_spam"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(personal_spam):
    return personal_spam.measure(n_mails=20_000, n_users=3_000, n_test=2_000, bits=[18, 22], seed=0)


@pytest.mark.parametrize("n_bits", [18, 22])
def test_personal_filters_catch_more_where_the_user_is_known(found, n_bits):
    everybody, personal = found["global", n_bits], found["personal", n_bits]
    assert personal[-1] < 0.5 * everybody[-1]  # 16 mails and more
    assert personal[-2] < 0.8 * everybody[-2]  # 8 to 15
    assert personal[0] < 1.05 * everybody[0]  # nothing known: no worse


def test_more_mails_of_a_user_help_the_personal_filter_only(found):
    assert found["personal", 22][-1] < 0.3 * found["personal", 22][0]
    assert found["global", 22][-1] == pytest.approx(found["global", 22][0], rel=0.25)


def test_one_good_mail_in_a_hundred_is_lost(personal_spam):
    scores = np.arange(1000.0)
    spam = (np.arange(1000) % 2 == 0).astype(int)

    class Model:
        def decision_function(self, rows):
            return scores

    mails = personal_spam.Mails({}, spam, None)
    assert personal_spam.uncaught(Model(), mails) == pytest.approx(0.99, abs=0.005)


def test_the_example_prints_a_table(personal_spam, capsys, tmp_path):
    size = ["--mails", "3000", "--users", "600", "--test", "200", "--bits", "18"]
    personal_spam.main([*size, "--picture", str(tmp_path / "a.svg")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["uncaught", "spam,", "%", "0", "1", "2-3", "4-7", "8-15", "16+"]
    assert [line.split()[0] for line in lines[1:]] == ["global", "personal"]
