"""The examples for containers: their commands start a server, and their probes are routes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from servers import Server, models  # noqa: F401

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"

pytestmark = pytest.mark.xdist_group("serve-deploy")


def flags_of(command):
    """The flags of a command that serves, with a free port of loopback in place of the container's."""
    assert command[:2] == ["steepest", "serve"]
    assert command[2].endswith("/model.steepest")
    flags = command[3:]
    assert [flags[flags.index(name) + 1] for name in ("--host", "--port")] == ["0.0.0.0", "8080"]
    return [flag for flag in flags if flag not in ("--host", "0.0.0.0", "--port", "8080")]


def test_the_command_and_the_check_of_the_dockerfile_work(models, monkeypatch):
    text = (DEPLOY / "Dockerfile").read_text()
    command = json.loads(re.search(r"^CMD (\[.*\])$", text, re.M)[1])
    check = re.search(r'^HEALTHCHECK CMD python -c "(.*)"$', text, re.M)[1]
    monkeypatch.setenv("STEEPEST_TOKEN", "secret")
    server = Server(models["text"], *flags_of(command))
    try:
        exec(check.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}"), {"__name__": "check"})
        assert server.call("/predict", {"rows": ["great film"]})[0] == 401
        assert server.call("/predict", {"rows": ["great film"]}, token="secret")[0] == 200
    finally:
        assert server.stop() == 0


def test_the_runtime_for_kserve_starts_and_is_probed_at_routes_that_exist(models, monkeypatch):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    runtime, service = yaml.safe_load_all((DEPLOY / "kserve.yaml").read_text())
    assert (runtime["kind"], service["kind"]) == ("ServingRuntime", "InferenceService")
    assert service["spec"]["predictor"]["model"]["runtime"] == runtime["metadata"]["name"]
    (container,) = runtime["spec"]["containers"]
    monkeypatch.setenv(container["env"][0]["name"], "secret")
    server = Server(models["text"], *flags_of(container["command"]))
    try:
        for probe in ("readinessProbe", "livenessProbe"):
            assert server.call(container[probe]["httpGet"]["path"])[0] == 200
    finally:
        assert server.stop() == 0
