"""Routes: from a request to an answer, at once where that is quick, in a thread where it is not.

One text is answered in the event loop itself, since a change of thread would cost more than the prediction. Large
batches and explanations go to a few threads; rows to learn go to the learner's own. Who may call what: a token guards
/learn, and every route if the server can be reached from elsewhere; probes and the empty page stay open.
"""

from __future__ import annotations

import asyncio
import hmac
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import orjson

from steepest.data.chunk import Array
from steepest.engine.drift import Drift
from steepest.errors import DataError, ParameterError
from steepest.serve import inference, openapi
from steepest.serve.answers import HTML, PAGE_HEADERS, TEXT, Answer, Refusal, as_json
from steepest.serve.connection import Request
from steepest.serve.counters import ROUTES, Counters
from steepest.serve.learning import OnlineLearner, loss_name
from steepest.serve.line_stream import LineStream
from steepest.serve.options import LOCAL_NAMES, ServeOptions
from steepest.serve.predictor import Predictor, named

Handler = Callable[[Request], "Answer | asyncio.Future[Answer]"]

SMALL_ROWS, SMALL_BYTES = 64, 1 << 16  # what is answered in the event loop itself
SLICE = 1_000  # rows of a batch between looks at the clock
SAMPLE_SECONDS = 0.05  # between rows that are watched for drift
WATCHED_LABELS = 8
THREADS = 2
MOST_SHARES = 1_000_000


class App:
    """One model behind HTTP routes."""

    def __init__(
        self,
        predictor: Predictor,
        options: ServeOptions,
        counters: Counters,
        learner: OnlineLearner | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.predictor, self.options, self.counters, self.learner = predictor, options, counters, learner
        self._lock = lock or nullcontext()
        self._pool = ThreadPoolExecutor(THREADS, "steepest-batch")
        self._n_jobs = 0
        self.ready = True
        self._token = None if options.token is None else options.token.encode()
        self._sample_at = 0.0
        self._watch = threading.Lock()
        self._drift: dict[Any, Drift] = {}
        self._page = files("steepest.serve").joinpath("page.html").read_bytes()
        self._routes: dict[str, tuple[int, bool, dict[str, Handler]]] = {}
        self._add_routes()

    def _add_routes(self) -> None:
        """Every path, its place among the counters, whether it is open to all, and its methods."""
        table: tuple[tuple[str, str, bool, dict[str, Handler]], ...] = (
            ("/predict", "predict", False, {"POST": self._predict}),
            ("/explain", "explain", False, {"POST": self._explain}),
            ("/recommend", "recommend", False, {"POST": self._recommend}),
            ("/learn", "learn", False, {"POST": self._learn}),
            ("/model", "model", False, {"GET": self._model}),
            ("/metrics", "metrics", False, {"GET": self._metrics}),
            ("/openapi.json", "openapi", False, {"GET": self._openapi}),
            ("/docs", "openapi", False, {"GET": self._docs}),
            ("/", "page", True, {"GET": self._front}),
            ("/healthz", "health", True, {"GET": self._alive}),
            ("/readyz", "health", True, {"GET": self._readiness}),
            ("/v2", "infer", False, {"GET": self._v2_server}),
            ("/v2/health/live", "health", True, {"GET": self._v2_live}),
            ("/v2/health/ready", "health", True, {"GET": self._v2_ready}),
        )
        for path, route, is_open, methods in table:
            self._routes[path] = (ROUTES.index(route), is_open, methods)

    def take(self, predictor: Predictor) -> None:
        """Serves another model from the next request on; answers that are being made end with the old one."""
        if predictor.classes != self.predictor.classes:
            self.counters.forget_labels()
            self._drift = {}
        self.predictor = predictor

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------------------------------- from a connection

    def handle(self, request: Request) -> Answer | asyncio.Future[Answer]:
        """The answer, or a future of it."""
        try:
            found = self._routes.get(request.path) or self._model_route(request.path)
            if found is None:
                raise Refusal(404, f"there is no {request.path[:100]!r}; GET /openapi.json lists the routes")
            request.route, is_open, methods = found
            handler = methods.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
                sentence = f"{request.path} takes {allowed}, not {request.method[:20]}"
                raise Refusal(405, sentence, b"Allow: %b\r\n" % allowed.encode())
            self._authorize(request, is_open)
            return handler(request)
        except Exception as error:
            return answer_of(error)

    def outcome(self, done: asyncio.Future[Any]) -> Answer:
        """The answer that a future came to."""
        if done.cancelled():
            return Refusal(503, "the server is stopping; try again").answer()
        if (error := done.exception()) is not None:
            return answer_of(error)
        found = done.result()
        return found if isinstance(found, Answer) else as_json(found)

    def counted(self, request: Request, status: int) -> None:
        """Counts an answer that was sent."""
        self.counters.answered(request.route, status, time.perf_counter() - request.start)

    def refused(self, status: int) -> None:
        """Counts a request that was refused before it was complete."""
        self.counters.answered(len(ROUTES) - 1, status, 0.0)

    def open_stream(self, request: Request, *, chunked: bool) -> LineStream:
        """The answer to JSON lines."""
        request.route = ROUTES.index("predict")
        self._authorize(request, is_open=False)
        return LineStream(self, chunked=chunked)

    def _authorize(self, request: Request, is_open: bool) -> None:
        """Whether this caller may; browsers that show a page of somebody else may not."""
        origin = request.headers.get(b"origin")
        if origin is not None and request.method == "POST":
            self._check_origin(origin.decode("latin-1"), request.headers.get(b"host", b"").decode("latin-1"))
        if self._token is None or is_open:
            return
        given = request.headers.get(b"authorization")
        if given is None and not (self.options.guards_everything or request.path == "/learn"):
            return
        scheme, _, token = (given or b"").partition(b" ")  # names of schemes have no case
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            said = "a token is needed" if given is None else "the token is wrong"
            raise Refusal(401, f"{said}; send the header Authorization: Bearer TOKEN", b"WWW-Authenticate: Bearer\r\n")

    def _check_origin(self, origin: str, host: str) -> None:
        """Raises unless a web page's request comes from this server's own pages, under a name nobody can fake."""
        name = urlsplit(f"//{host}").hostname or ""
        is_address = name.replace(".", "").isdigit() or ":" in name
        if urlsplit(origin).netloc != host or not (is_address or name in (*LOCAL_NAMES, self.options.host)):
            raise Refusal(403, f"a page of {origin[:100]!r} may not call this server; open the server's own page")

    # -------------------------------------------------------------------------------------------------- predictions

    def _predict(self, request: Request) -> Answer | asyncio.Future[Answer]:
        body = request.body
        if request.has_lines:
            return self._job(lambda: LineStream(self, chunked=False).answer(body))
        if len(body) > SMALL_BYTES:
            return self._job(lambda: as_json(self._predicted(self._many_rows(body))))
        rows = self._rows(parse(body), "rows")
        if len(rows) > SMALL_ROWS:
            return self._job(lambda: as_json(self._predicted(rows)))
        return as_json(self._predicted(rows))

    def _rows(self, value: Any, name: str) -> list[Any]:
        rows = value.get(name)
        if type(rows) is not list:
            example = '{"rows": [row, ...]}' if name == "rows" else f'{{"{name}": [...]}}'
            raise Refusal(400, f'the body needs "{name}", a list, as in {example}')
        self._check_number(rows)
        return rows

    def _many_rows(self, body: bytes) -> Any:
        """The rows of a long body; texts are not made strings of Python, which take as long as all the rest."""
        texts = self.predictor.rows.texts_of(body)
        if texts is None:
            return self._rows(parse(body), "rows")
        self._check_number(texts)
        return texts

    def _check_number(self, rows: Any) -> None:
        if len(rows) > self.options.max_rows:
            most = self.options.max_rows
            raise Refusal(413, f"{len(rows)} rows are more than {most} at a time; send fewer, or raise --max-rows")

    def _predicted(self, rows: Any) -> dict[str, Any]:
        predictor = self.predictor
        labels, probabilities, names = self._answer(predictor, rows)
        if not predictor.has_probabilities:
            return {"predictions": labels}
        values = [] if probabilities is None else probabilities.tolist()
        return {"predictions": labels, "probabilities": named(names, values)}

    def predict_rows(self, rows: list[Any]) -> list[dict[str, Any]]:
        """Predicts one answer per row, for a stream of lines."""
        found = self._predicted(rows)
        if "probabilities" not in found:
            return [{"prediction": label} for label in found["predictions"]]
        pairs = zip(found["predictions"], found["probabilities"], strict=True)
        return [{"prediction": label, "probabilities": p} for label, p in pairs]

    def _answer(self, predictor: Predictor, rows: Any) -> tuple[list[Any], Array | None, list[str]]:
        """Predictions, probabilities and the names of their columns; counts them and watches for drift."""
        if not len(rows):
            return [], None, predictor.class_names
        X = predictor.rows.read(rows)
        if len(rows) <= SLICE:
            with self._lock:  # the names belong to the answer: a class may be learned right behind it
                labels, probabilities = predictor.answer(X)
                names = predictor.class_names
        else:
            labels, probabilities, names = self._in_slices(predictor, X, len(rows))
        self._count(predictor, X, labels)
        return labels, probabilities, names

    def _in_slices(self, predictor: Predictor, X: Any, n_rows: int) -> tuple[list[Any], Array | None, list[str]]:
        """Predicts a long batch in slices, between which learning may go on; gives up after the time limit."""
        end = time.monotonic() + self.options.timeout
        labels: list[Any] = []
        parts = []
        names = predictor.class_names
        for at in range(0, n_rows, SLICE):
            if time.monotonic() > end:
                raise Refusal(408, f"{n_rows} rows take longer than --timeout {self.options.timeout:g} s; send fewer")
            with self._lock:
                if predictor.class_names is not names:  # a class was learned meanwhile: all rows get its column
                    labels, probabilities = predictor.answer(X)
                    return labels, probabilities, predictor.class_names
                some, probabilities = predictor.answer(X[at : at + SLICE])
            labels += some
            if probabilities is not None:
                parts.append(probabilities)
        return labels, np.concatenate(parts) if parts else None, names

    def _count(self, predictor: Predictor, X: Any, labels: list[Any]) -> None:
        counters = self.counters
        counters.add("rows_predicted", len(labels))
        if not predictor.classes:
            if predictor.kind != "clusterer":
                counters.add("prediction_sum", sum(label if type(label) is float else 0.0 for label in labels))
                counters.add("prediction_rows", len(labels))
        elif not predictor.several:
            places = predictor.places
            counters.predicted((places.get(label, 0), n) for label, n in Counter(labels).items())
        now = time.monotonic()
        if now >= self._sample_at and self._watch.acquire(blocking=False):
            try:
                self._sample_at = now + SAMPLE_SECONDS
                self._sample(predictor, X[:1], labels[0])
            finally:
                self._watch.release()

    def _sample(self, predictor: Predictor, X: Any, label: Any) -> None:
        """Watches a sample of the rows for drift; watching all of them would cost more than predicting."""
        with self._lock:
            unseen = predictor.unseen(X)
        if unseen is not None:
            self.counters.add("features", unseen[0])
            self.counters.add("unseen", unseen[1])
            if unseen[0] and self._drift.setdefault("unseen", Drift()).add(unseen[1] / unseen[0]):
                self.counters.alarm("unseen_features")
        if predictor.classes and not predictor.several:
            for known in predictor.classes[:WATCHED_LABELS]:
                if self._drift.setdefault(("label", known), Drift()).add(float(known == label)):
                    self.counters.alarm("predicted_labels")

    # ------------------------------------------------------------------------------------------------- other questions

    def _explain(self, request: Request) -> Answer | asyncio.Future[Answer]:
        value, predictor = parse(request.body), self.predictor
        if not predictor.explains:
            kind = type(predictor.model).__name__
            raise Refusal(404, f"the score of a {kind} is not a sum over features; serve a linear model to explain")
        if "row" not in value:
            raise Refusal(400, 'the body needs "row", as in {"row": row}')
        top = whole(value, "top", MOST_SHARES, MOST_SHARES)

        def explained() -> Answer:
            with self._lock:
                return as_json(predictor.explain(value["row"], top))

        return self._job(explained)

    def _recommend(self, request: Request) -> Answer | asyncio.Future[Answer]:
        value, predictor = parse(request.body), self.predictor
        if not predictor.recommends:
            raise Refusal(404, f"a {type(predictor.model).__name__} does not recommend; serve a MatrixFactorization")
        users = self._rows(value, "users")
        for user in users:
            if type(user) not in (str, int):
                raise Refusal(400, f"the user {str(user)[:100]!r} is not an id; give texts or whole numbers")
        k, seen = whole(value, "k", 10, 1000), value.get("include_seen", False)
        if type(seen) is not bool:
            raise Refusal(400, '"include_seen" must be true or false')

        def recommended() -> Answer:
            with self._lock:
                return as_json({"recommendations": predictor.recommend(users, k, include_seen=seen)})

        return self._job(recommended)

    def _learn(self, request: Request) -> Answer | asyncio.Future[Answer]:
        if self.learner is None:
            raise Refusal(403, "this server does not learn; start it with --learn --log DIR")
        value = parse(request.body)
        rows, labels = self._rows(value, "rows"), self._rows(value, "labels")
        if len(rows) != len(labels):
            raise Refusal(400, f"there are {len(rows)} rows and {len(labels)} labels; give one label per row")
        if not rows:
            return as_json({"learned": 0, "sequence": self.learner.sequence})
        if self.learner.n_waiting >= self.options.max_jobs:
            raise busy()
        return self.learner.submit(rows, labels, asyncio.get_running_loop())

    def _model(self, request: Request) -> Answer:
        found = self.predictor.describe()
        found["version"] = version("steepest")
        found["learning"] = None if self.learner is None else self.learner.describe()
        return as_json(found)

    def _metrics(self, request: Request) -> Answer:
        predictor = self.predictor
        info = {"name": predictor.name, "class": type(predictor.model).__name__, "identity": predictor.identity[:12]}
        text = self.counters.text(predictor.class_names, info, loss_name(predictor))
        return Answer(text.encode("utf-8", "replace"), type=TEXT)

    def _openapi(self, request: Request) -> Answer:
        return as_json(openapi.describe(self.predictor, self.options, version("steepest")))

    def _docs(self, request: Request) -> Answer:
        text = openapi.page(openapi.describe(self.predictor, self.options, version("steepest")))
        return Answer(text.encode(), type=HTML, headers=PAGE_HEADERS)

    def _front(self, request: Request) -> Answer:
        return Answer(self._page, type=HTML, headers=PAGE_HEADERS)

    def _alive(self, request: Request) -> Answer:
        return as_json({"status": "ok"})

    def _readiness(self, request: Request) -> Answer:
        if not self.ready:
            raise Refusal(503, "the server is stopping")
        return as_json({"status": "ready"})

    # --------------------------------------------------------------------------------------------- Open Inference (V2)

    def _model_route(self, path: str) -> tuple[int, bool, dict[str, Handler]] | None:
        """Routes under /v2/models/NAME, with or without /versions/VERSION."""
        parts = path.split("/")
        if path[:11] != "/v2/models/" or parts[3] != self.predictor.name:
            return None
        rest = parts[4:]
        if len(rest) >= 2 and rest[0] == "versions":
            if rest[1] != self.predictor.identity[:12]:
                return None
            rest = rest[2:]
        place = ROUTES.index("infer")
        if rest == []:
            return place, False, {"GET": self._v2_model}
        if rest == ["ready"]:
            return place, True, {"GET": self._v2_model_ready}
        return (place, False, {"POST": self._v2_infer}) if rest == ["infer"] else None

    def _v2_server(self, request: Request) -> Answer:
        return as_json(inference.server_metadata(version("steepest")))

    def _v2_live(self, request: Request) -> Answer:
        return as_json({"live": True})

    def _v2_ready(self, request: Request) -> Answer:
        self._readiness(request)
        return as_json({"ready": True})

    def _v2_model(self, request: Request) -> Answer:
        return as_json(inference.model_metadata(self.predictor))

    def _v2_model_ready(self, request: Request) -> Answer:
        self._readiness(request)
        return as_json({"name": self.predictor.name, "ready": True})

    def _v2_infer(self, request: Request) -> Answer | asyncio.Future[Answer]:
        body, predictor = request.body, self.predictor

        def answer(rows: list[Any]) -> tuple[list[Any], Array | None]:
            return self._answer(predictor, self._rows({"rows": rows}, "rows"))[:2]

        if len(body) > SMALL_BYTES:
            return self._job(lambda: as_json(inference.infer(predictor, parse(body), answer)))
        return as_json(inference.infer(predictor, parse(body), answer))

    # --------------------------------------------------------------------------------------------------------- threads

    def _job(self, make: Callable[[], Answer]) -> asyncio.Future[Answer]:
        """Runs a function in a thread; returns a future of its answer."""
        if self._n_jobs >= self.options.max_jobs:
            raise busy()
        self._n_jobs += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, make)
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, done: asyncio.Future[Answer]) -> None:
        self._n_jobs -= 1


def parse(body: bytes) -> dict[str, Any]:
    """A body that is a JSON object."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if type(value) is not dict:
        raise Refusal(400, 'the body must be a JSON object, as in {"rows": [row, ...]}')
    return value


def whole(value: dict[str, Any], name: str, default: int, most: int) -> int:
    """A whole number of the body, from 1 on."""
    found = value.get(name, default)
    if type(found) is float and found.is_integer():  # 3.0 is a whole number in JSON
        found = int(found)
    if type(found) is not int or not 1 <= found <= most:
        raise Refusal(400, f'"{name}" must be a whole number from 1 to {most}')
    return found


def busy() -> Refusal:
    """The error for a server with too many waiting requests."""
    return Refusal(429, "too many requests are waiting; try again in a moment", b"Retry-After: 1\r\n")


def answer_of(error: BaseException) -> Answer:
    """The answer for an error: one sentence if the caller is at fault, else 500 and a report on stderr."""
    if isinstance(error, Refusal):
        return error.answer()
    if isinstance(error, DataError | ParameterError):
        return Refusal(400, " ".join(str(error).split())).answer()
    if isinstance(error, MemoryError):
        return Refusal(413, "the request needs more memory than there is; send fewer rows").answer()
    traceback.print_exception(error, file=sys.stderr)
    return Refusal(500, f"the server failed ({type(error).__name__}); its log says where").answer()
