"""The OpenAPI description is true: what it allows is answered as it says, what it forbids is refused, and no 5xx."""

from __future__ import annotations

import json

import pytest
from servers import models, start  # noqa: F401

pytestmark = pytest.mark.xdist_group("serve-openapi")

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
EXAMPLES = 12  # per route; `schemathesis run URL/openapi.json` takes as many as one likes


@pytest.mark.parametrize("name", ["text", "bags", "columns", "sparse", "pairs", "several", "embedding"])
def test_generated_requests_get_documented_answers(models, start, tmp_path, name):
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as values

    server = start(models[name], "--learn", "--log", tmp_path / "log")
    description = server.call("/openapi.json")[1]
    schema = schemathesis.openapi.from_dict(description)
    # That there are as many labels as rows, say, cannot be written in a schema.
    beyond_schemas = schemathesis.checks.CHECKS.get_one("positive_data_acceptance")
    cases = [operation.ok().as_strategy() for operation in schema.get_all_operations()]

    @settings(max_examples=EXAMPLES * len(cases) // 2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values.one_of(cases))
    def check(case):
        answer = case.call(base_url=f"http://127.0.0.1:{server.port}", timeout=30)
        assert answer.status_code < 500, (case.body, answer.content)
        case.validate_response(answer, excluded_checks=[beyond_schemas])

    check()
    server.read()
    assert "Traceback" not in server.said
    server.kill()


def test_the_description_knows_the_model(models, start):
    server = start(models["columns"], "--token", "T")
    _, _, data = server.raw("GET", "/openapi.json", headers={"Authorization": "Bearer T"})
    found = json.loads(data)
    row = found["components"]["schemas"]["Row"]
    assert row["properties"] == {"size": {"type": ["number", "null"]}, "town": row["properties"]["town"]}
    assert found["security"] == [{"token": []}]
    assert {"/predict", "/explain", "/recommend", "/learn", "/model", "/metrics"} <= set(found["paths"])
    server.kill()
