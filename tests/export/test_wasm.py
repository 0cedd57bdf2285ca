"""The page of examples/wasm: an exported model, compiled to WebAssembly, answers in a browser as the model does."""

from __future__ import annotations

import http.server
import importlib.util
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import steepest as st

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGE = Path(__file__).parents[2] / "examples" / "wasm"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *parts):
        """Nothing: the output belongs to the tests."""


@pytest.fixture
def served(tmp_path):
    handler = partial(QuietFiles, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_the_page_classifies_texts_as_the_model_does(tmp_path, served):
    rng = np.random.default_rng(0)
    words = {"good": ["warm", "fine", "süß"], "bad": ["cold", "dull", "weak"]}
    y = rng.choice(["good", "bad"], 200)
    texts = [" ".join([*rng.choice(words[label], 2), *rng.choice(["film", "plot"], 2)]) for label in y]
    model = st.LinearClassifier("log", hasher=st.Hasher(n_bits=12), random_state=0).fit(texts, y)
    st.export_model(model, tmp_path / "model.c", to="c")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-O2"]
    subprocess.run(
        [*command, '-DMODEL="model.c"', f"-I{tmp_path}", str(PAGE / "classify.c"), "-o", "model.wasm"],
        cwd=tmp_path,
        check=True,
    )
    shutil.copy(PAGE / "page.html", tmp_path)
    for text in ("a warm, süß film", "dull and COLD plot", ""):
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
            f"--user-data-dir={tmp_path}/p",
        ]
        page = subprocess.run(
            [CHROMIUM, *flags, "--dump-dom", f"{served}/page.html?text={quote(text)}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        assert re.search(r'<output id="class"[^>]*>([^<]*)<', page)[1] == model.predict([text])[0]
        found = {name: float(p) for name, p in re.findall(r"<td>(\w+)</td><td>([\d.]+)</td>", page)}
        expected = dict(zip(model.classes_.tolist(), model.predict_proba([text])[0], strict=True))
        assert found == pytest.approx(expected, abs=2e-6)
