"""Requests per second of `steepest serve`, beside a FastAPI + scikit-learn pipeline and Vowpal Wabbit's daemon.

    python -m benchmarks.serve                    # one text per request, latency, batches, /learn
    python -m benchmarks.serve --stacks           # the same handler behind other HTTP servers
    python -m benchmarks.serve --soak 180         # full load for some minutes: memory and errors

All servers run on loopback with one worker each, all hold a model of the same reviews, and take turns within one run;
the load comes from this process, a second one. Ratios of one run are comparable; seconds of a busy machine are not, so
the processor time that a server takes per request is shown beside. Needs `pip install steepest[bench,serve] fastapi
uvicorn hypercorn granian`; who is not installed is left out, and said so.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import steepest as st

DATA = Path(os.environ.get("STEEPEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
CONNECTIONS = 8

FASTAPI = """
import pickle, sys
from fastapi import FastAPI
from pydantic import BaseModel
import uvicorn
model = pickle.load(open(sys.argv[1], "rb"))
names = [str(name) for name in model.classes_]
app = FastAPI()
class Rows(BaseModel):
    rows: list[str]
@app.post("/predict")
async def predict(rows: Rows):
    p = model.predict_proba(rows.rows)
    labels = model.classes_[p.argmax(axis=1)].tolist()
    return {"predictions": labels, "probabilities": [dict(zip(names, row)) for row in p.tolist()]}
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False)
"""

VW = """
import sys
from vowpalwabbit import Workspace
daemon = Workspace(" ".join(sys.argv[1:]), enable_logging=False)
daemon.run_parser()
"""

ASGI = """
import asyncio, sys
from steepest.serve.app import App
from steepest.serve.connection import Request
from steepest.serve.counters import Counters
from steepest.serve.loading import load_model
from steepest.serve.options import ServeOptions
from steepest.serve.server import predictor_of
from steepest.serve.answers import Answer
options = ServeOptions(MODEL)
handler = App(predictor_of(options, load_model(MODEL)), options, Counters())
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    request, parts, more = Request(), [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    request.method, request.path, request.body = scope["method"], scope["path"], b"".join(parts)
    request.headers = dict(scope["headers"])
    found = handler.handle(request)
    answer = found if isinstance(found, Answer) else await found
    headers = [(b"content-type", answer.type), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
"""


def reviews(name, n=None):
    """(texts, labels) of the imdb reviews, or made ones of the same length where these are not there."""
    path = DATA / "imdb" / f"imdb-{name}.jsonl.gz"
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for _, line in zip(range(n or 10**9), lines, strict=False)]
        return [row["text"] for row in rows], [row["label"] for row in rows]
    rng = np.random.default_rng(len(name))
    words = np.array([f"word{k}" for k in range(30_000)])
    texts = [" ".join(words[rng.zipf(1.3, 230) % 30_000]) for _ in range(n or 5000)]
    return texts, [("neg", "pos")[k % 2] for k in range(len(texts))]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """A server in a process of its own."""

    def __init__(self, name, command, port, *, lines=False):
        self.name, self.port, self.lines = name, port, lines
        self.process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{name} did not start") from None
                time.sleep(0.1)
        time.sleep(0.5)

    def processes(self):
        """The process and those that it has started."""
        found, group = [], self.process.pid
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if os.getpgid(int(entry)) == group:
                        found.append(int(entry))
                except OSError:
                    continue
        return found

    def cpu(self):
        """Seconds of processor time so far."""
        total = 0
        for process in self.processes():
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self):
        pages = [int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in self.processes()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def request(self, text):
        """One text as this server takes it."""
        if self.lines:
            return b"| " + " ".join(text.replace(":", " ").replace("|", " ").split()).encode() + b"\n"
        return post("/predict", {"rows": [text]})

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


def post(path, value, headers=""):
    body = json.dumps(value).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def is_whole(data, lines):
    """Whether an answer has arrived."""
    if lines:
        return data.endswith(b"\n")
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(data[:300].decode("latin-1"))
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return len(body) >= length


def load(port, requests, seconds, *, lines=False, connections=CONNECTIONS, rate=None):
    """(answers per second, latencies): as fast as answers come, or at a fixed rate whatever they do."""
    poll, clients, idle = select.epoll(), {}, []
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clients[client.fileno()] = [client, 0.0, b""]
        poll.register(client.fileno(), select.EPOLLIN)
        idle.append(client.fileno())
    start = time.perf_counter()
    due, n_sent, latencies = start, 0, []
    while True:
        now = time.perf_counter()
        if now - start > seconds:
            break
        while idle and (rate is None or due <= now):
            number = idle.pop()
            entry = clients[number]
            entry[1], entry[2] = (now if rate is None else due), b""
            entry[0].sendall(requests[n_sent % len(requests)])
            n_sent += 1
            if rate is not None:
                due += 1 / rate
        wait = 0.05 if rate is None or not idle else max(0.0, min(due - time.perf_counter(), 0.05))
        for number, _ in poll.poll(wait):
            entry = clients[number]
            part = entry[0].recv(1 << 20)
            if not part:
                raise RuntimeError("the server closed a connection")
            entry[2] += part
            if is_whole(entry[2], lines):
                latencies.append(time.perf_counter() - entry[1])
                idle.append(number)
    for client, _, _ in clients.values():
        client.close()
    return len(latencies) / (time.perf_counter() - start), latencies


def steepest(model, *flags):
    port = free_port()
    command = [sys.executable, "-m", "steepest", "serve", str(model), "--port", str(port), *flags]
    return Peer("steepest serve", command, port)


def fastapi(folder, texts, labels):
    import pickle

    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(TfidfVectorizer(), SGDClassifier(loss="log_loss", random_state=0)).fit(texts, labels)
    (folder / "pipeline.pickle").write_bytes(pickle.dumps(pipeline))
    port = free_port()
    command = [sys.executable, "-c", FASTAPI, str(folder / "pipeline.pickle"), str(port)]
    return Peer("FastAPI + scikit-learn", command, port)


def vw(folder, texts, labels):
    from vowpalwabbit import Workspace

    path = folder / "model.vw"
    learner = Workspace(f"--loss_function logistic --link logistic -b 22 --quiet -f {path}")
    for text, label in zip(texts, labels, strict=True):
        clean = " ".join(text.replace(":", " ").replace("|", " ").split())
        learner.learn(f"{1 if label == 'pos' else -1} | {clean}")
    learner.finish()
    port = free_port()
    flags = ["-i", str(path), "-t", "--daemon", "--foreground", "--num_children", str(CONNECTIONS), "--quiet"]
    return Peer("vw --daemon (TCP)", [sys.executable, "-c", VW, *flags, "--port", str(port)], port, lines=True)


def percentiles(latencies):
    return f"p50 {1e3 * np.percentile(latencies, 50):.2f} ms, p99 {1e3 * np.percentile(latencies, 99):.2f} ms"


def compare(peers, texts, rounds, seconds):
    """Turns of all servers; medians of requests per second and of processor time per request."""
    rates = {peer.name: [] for peer in peers}
    costs = {peer.name: [] for peer in peers}
    requests = {peer.name: [peer.request(text) for text in texts] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            before = peer.cpu()
            rate, latencies = load(peer.port, requests[peer.name], seconds, lines=peer.lines)
            rates[peer.name].append(rate)
            costs[peer.name].append((peer.cpu() - before) / len(latencies))
    first = peers[0].name
    print(f"\none text per request, {CONNECTIONS} connections, {rounds} rounds of {seconds:g} s each")
    for peer in peers:
        ratio = statistics.median(a / b for a, b in zip(rates[first], rates[peer.name], strict=True))
        cost = statistics.median(costs[peer.name])
        print(
            f"{peer.name:26s} {statistics.median(rates[peer.name]):8.0f} requests/s  {1e6 * cost:7.0f} µs of processor "
            f"time  steepest is {ratio:.1f} times as fast, {cost / statistics.median(costs[first]):.1f} times by "
            "processor time"
        )
    capacity = statistics.median(rates[first])
    for share in (0.5, 0.9):
        _, latencies = load(peers[0].port, requests[first], 2 * seconds, rate=share * capacity, connections=32)
        print(f"steepest at {share:.0%} of its capacity: {percentiles(latencies)}")


def batches(peer, model, texts):
    """A thousand documents in one request, beside the same in this process, by processor time and by the clock.

    A string keeps its UTF-8 form once it was asked for, so texts that were predicted before are cheaper than new ones,
    which a server always has: both are shown.
    """
    request = [post("/predict", {"rows": texts[:1000]})]
    written = json.dumps(texts[:1000])
    again, new, served, speed = [], [], [], []
    for _ in range(7):
        copies = [json.loads(written) for _ in range(10)]
        start, clock = time.process_time(), time.perf_counter()
        for _ in range(10):
            model.predict_proba(texts[:1000])
        again.append((time.process_time() - start) / 10)
        inside = (time.perf_counter() - clock) / 10
        start = time.process_time()
        for copy in copies:
            model.predict_proba(copy)
        new.append((time.process_time() - start) / 10)
        before = peer.cpu()
        rate, latencies = load(peer.port, request, 2, connections=2)  # one is sent while the other is computed
        served.append((peer.cpu() - before) / len(latencies))
        speed.append(inside * rate)
    print(
        f"\nbatches of 1,000 documents: {1e3 * min(served):.1f} ms of processor time, least of {len(served)}; "
        f"in process {1e3 * min(new):.1f} ms for new strings ({min(new) / min(served):.0%}), "
        f"{1e3 * min(again):.1f} ms for strings predicted before ({min(again) / min(served):.0%}); "
        f"by the clock {statistics.median(speed):.0%}"
    )


def learning(path, texts, labels, folder):
    """Acknowledged rows per second, each after its fsync."""
    print("\n/learn, every answer after its fsync")
    for connections, rows in ((1, 1), (8, 1), (32, 1), (8, 100)):
        peer = steepest(path, "--learn", "--log", str(folder / f"log-{connections}-{rows}"))
        requests = [
            post("/learn", {"rows": texts[k : k + rows], "labels": labels[k : k + rows]})
            for k in range(0, 1000 - rows, rows)
        ]
        rate, latencies = load(peer.port, requests, 3, connections=connections)
        print(
            f"{connections:3d} connections, {rows:3d} rows each: {rate * rows:8,.0f} rows/s, {percentiles(latencies)}"
        )
        peer.end()


def soak(path, texts, labels, folder, seconds):
    """Full load of predictions and learning; memory before and after."""
    peer = steepest(path, "--learn", "--log", str(folder / "log"), "--snapshot-rows", "2000")
    requests = [post("/predict", {"rows": [text]}) for text in texts[:500]]
    requests[::50] = [post("/learn", {"rows": [t], "labels": [y]}) for t, y in zip(texts[:10], labels, strict=False)]
    load(peer.port, requests, min(20, seconds / 4))
    sizes, n_answers = [peer.memory()], 0
    for _ in range(max(1, round(seconds / 15))):
        _, latencies = load(peer.port, requests, 15)
        sizes.append(peer.memory())
        n_answers += len(latencies)
    peer.end()
    shown = ", ".join(f"{size / 2**20:.1f}" for size in sizes)
    print(f"soak: {n_answers:,} answers, no error; resident MiB after each 15 s: {shown}")


def stacks(path, texts, rounds, seconds, folder):
    """The same handler behind other servers."""
    peers = [steepest(path)]
    (folder / "asgi_app.py").write_text(f"MODEL = {str(path)!r}\n{ASGI}")
    commands = {
        "uvicorn": "-m uvicorn asgi_app:app --port {port} --log-level error --no-access-log --loop uvloop",
        "hypercorn": "-m hypercorn asgi_app:app --bind 127.0.0.1:{port} --worker-class uvloop",
        "granian": "-m granian asgi_app:app --interface asgi --port {port} --loop uvloop --no-access-log",
    }
    for name, command in commands.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and left out")
            continue
        port = free_port()
        os.environ["PYTHONPATH"] = str(folder)
        peers.append(Peer(name, [sys.executable, *command.format(port=port).split()], port))
    try:
        compare(peers, texts, rounds, seconds)
    finally:
        for peer in peers:
            peer.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rows", type=int, help="training rows, all by default")
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--soak", type=float)
    options = parser.parse_args()
    train, labels = reviews("train", options.rows)
    test, truths = reviews("test", 2000)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = folder / "imdb.steepest"
        model = st.LinearClassifier("log", hasher=st.Hasher(names=10_000), random_state=0).fit(train, labels)
        model.save(path)
        if options.soak:
            soak(path, test, truths, folder, options.soak)
            return
        if options.stacks:
            stacks(path, test, options.rounds, options.seconds, folder)
            return
        peers = [steepest(path)]
        try:
            for name, make in (("fastapi", fastapi), ("vowpalwabbit", vw)):
                if importlib.util.find_spec(name) is None:
                    print(f"{name} is not installed and left out")
                else:
                    peers.append(make(folder, train, labels))
            compare(peers, test, options.rounds, options.seconds)
            batches(peers[0], model, test)
        finally:
            for peer in peers:
                peer.end()
        learning(path, test, truths, folder)


if __name__ == "__main__":
    main()
