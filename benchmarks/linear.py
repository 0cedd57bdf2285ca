"""Linear models beside scikit-learn, Vowpal Wabbit and LIBLINEAR, with the targets we hold ourselves to.

epoch      one epoch in memory: all that `fit` does, once it is warm
objective  distance to the optimum of mean loss + alpha/2 |w|^2, which LIBLINEAR finds once
large      weight tables of 2^22 and 2^24: nanoseconds a non-zero, of the kernel and of the whole fit
parse      libsvm text to CSR
stream     a file on disk to a saved model through the command line, and the memory that takes
start      new processes: import and a tiny fit, prediction of ten rows, beside `import numpy`
predict    labels and scores, of all rows at once and of 1,000 rows at a time

No fitted model has an intercept, so all minimise the same thing. Seconds are processor time of all threads; for stream
and start, time on the wall. Only the standard library is imported here; each runner imports what it measures.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import CACHE, TEST_ROWS, text_path
from benchmarks.compare import Job, Result, Settings, Target, main, run_process, run_python

ALPHA = 1e-4
FULL = Settings(rows=781_265, text_rows=100_000, large_rows=100_000, launches=9)
QUICK = Settings(rows=50_000, text_rows=10_000, large_rows=20_000, launches=2)


def steepest_model(loss: str, *, average: bool | str = False, **choices: Any) -> Any:
    import steepest as st

    return st.LinearClassifier(
        loss=loss, alpha=ALPHA, average=average, fit_intercept=False, random_state=0, **{"solver": "sgd"} | choices
    )


def sklearn_model(loss: str, *, epochs: int, average: bool = False) -> Any:
    from sklearn.linear_model import SGDClassifier

    name = {"hinge": "hinge", "log": "log_loss"}[loss]
    return SGDClassifier(
        loss=name, alpha=ALPHA, max_iter=epochs, tol=None, average=average, fit_intercept=False, random_state=0
    )


def load_rows(settings: Settings, dtype: str = "float32", bits: int = 0) -> tuple[Any, Any]:
    from benchmarks.generate import load_large, load_rcv1

    X, y = load_large(bits, settings.large_rows) if bits else load_rcv1(settings.rows)
    return X.astype(dtype, copy=False), y


def seconds_of(work: Callable[[], Any]) -> float:
    """Processor time of all threads: the clock on the wall also counts what else the machine is doing."""
    start = time.process_time()
    work()
    return time.process_time() - start


def fit_seconds(model: Any, X: Any, y: Any, times: int = 3) -> float:
    """The median of some fits, after a small one that pays for imports; the first pays for memory never used before."""
    model.fit(X[:1000], y[:1000])
    return statistics.median(seconds_of(lambda: model.fit(X, y)) for _ in range(times))


def speeds(seconds: float, X: Any) -> Result:
    return {"seconds": seconds, "Mrows/s": X.shape[0] / seconds / 1e6, "ns/nnz": seconds / X.nnz * 1e9}


def faster_than(peer: str, times: float) -> Target:
    def ratio(results: dict[str, Result]) -> float:
        return results[peer]["seconds"] / next(iter(results.values()))["seconds"]

    return Target(f"times faster than {peer}", ratio, "at least", times)


def value_of(runner: str, key: str, side: str, bound: float) -> Target:
    return Target(f"{key}, {runner}", lambda results: results[runner][key], side, bound)


def epoch(settings: Settings, make: Callable[..., Any], loss: str, dtype: str = "float32", bits: int = 0) -> Result:
    X, y = load_rows(settings, dtype, bits)
    return speeds(fit_seconds(make(loss, epochs=1), X, y), X)


def epoch_job(loss: str) -> Job:
    runners = {
        "steepest float32": partial(epoch, make=steepest_model, loss=loss),
        "scikit-learn float32": partial(epoch, make=sklearn_model, loss=loss),
        "scikit-learn float64": partial(epoch, make=sklearn_model, loss=loss, dtype="float64"),
    }
    return Job(
        runners, [faster_than("scikit-learn float32", 4), value_of("steepest float32", "Mrows/s", "at least", 5)]
    )


def objective(loss: str, w: Any, X: Any, y: Any) -> float:
    import numpy as np

    margins = y * (X @ w)
    losses = np.maximum(0, 1 - margins) if loss == "hinge" else np.logaddexp(0, -margins)
    return float(losses.mean() + ALPHA / 2 * (w @ w))


def train_liblinear(X: Any, y: Any, solver: int, tolerance: float) -> tuple[float, Any]:
    """Seconds, without the conversion of the data, and weights."""
    import numpy as np
    from liblinear.liblinearutil import parameter, problem, train

    data = problem(y.astype(np.float64), X.astype(np.float64))
    options = parameter(f"-s {solver} -c {1 / (ALPHA * len(y)):.17g} -e {tolerance:g} -q")
    start = time.process_time()
    model = train(data, options)
    seconds = time.process_time() - start
    return seconds, np.array(model.w[: X.shape[1]]) * model.get_labels()[0]


def optimum_path(loss: str, rows: int) -> Path:
    return CACHE / f"optimum-{loss}-{rows}-{ALPHA:g}.json"


def find_optimum(loss: str, settings: Settings) -> None:
    """To a tight tolerance: the dual for the hinge, the trust region for the logistic loss."""
    X, y = load_rows(settings)
    _, w = train_liblinear(X, y, *((3, 1e-3) if loss == "hinge" else (0, 1e-6)))
    optimum_path(loss, settings.rows).write_text(json.dumps(objective(loss, w, X, y)))


def with_gap(settings: Settings, loss: str, seconds: float, w: Any, X: Any, y: Any) -> Result:
    import numpy as np

    from benchmarks.generate import load_rcv1

    if not optimum_path(loss, settings.rows).exists():
        raise ModuleNotFoundError("the optimum is unknown without LIBLINEAR", name="liblinear")
    best = json.loads(optimum_path(loss, settings.rows).read_text())
    X_test, y_test = load_rcv1(TEST_ROWS, "test")
    w = np.asarray(w, np.float64).ravel()
    gap = 100 * (objective(loss, w, X, y) / best - 1)
    return {"seconds": seconds, "% gap": gap, "% test error": 100 * float(np.mean(y_test * (X_test @ w) <= 0))}


def estimator_gap(settings: Settings, make: Callable[..., Any], loss: str, **choices: Any) -> Result:
    X, y = load_rows(settings)
    model = make(loss, **choices)
    return with_gap(settings, loss, fit_seconds(model, X, y, times=1), model.coef_, X, y)


def liblinear_gap(settings: Settings, loss: str, solver: int, tolerance: float) -> Result:
    X, y = load_rows(settings)
    return with_gap(settings, loss, *train_liblinear(X, y, solver, tolerance), X, y)


def objective_jobs() -> dict[str, Job]:
    def gaps(loss: str, solver: int, tolerance: float) -> dict[str, Callable[..., Result]]:
        return {
            "steepest sgd, 1 epoch": partial(estimator_gap, make=steepest_model, loss=loss, epochs=1),
            "scikit-learn, 1 epoch": partial(estimator_gap, make=sklearn_model, loss=loss, epochs=1),
            "LIBLINEAR, default": partial(liblinear_gap, loss=loss, solver=solver, tolerance=tolerance),
        }

    def asgd_over_sgd(results: dict[str, Result]) -> float:
        return results["steepest asgd, 2 epochs"]["% gap"] - results["steepest sgd, 5 epochs"]["% gap"]

    ours = partial(estimator_gap, make=steepest_model, loss="hinge")
    theirs = partial(estimator_gap, make=sklearn_model, loss="hinge")
    hinge = gaps("hinge", 3, 0.1) | {
        "steepest sgd, 5 epochs": partial(ours, epochs=5),
        "steepest asgd, 2 epochs": partial(ours, epochs=2, solver="asgd", average="auto"),
        "scikit-learn, 5 epochs": partial(theirs, epochs=5),
        "scikit-learn averaged, 2 epochs": partial(theirs, epochs=2, average=True),
    }
    targets = [
        value_of("steepest sgd, 1 epoch", "% gap", "at most", 0.2),
        value_of("steepest sgd, 5 epochs", "% gap", "at most", 0.05),
        Target("% gap of 2 epochs of asgd beyond that of 5 of sgd", asgd_over_sgd, "at most", 0),
    ]
    return {"objective": Job(hinge, targets, once=True), "objective-log": Job(gaps("log", 0, 0.01), once=True)}


def kernel(settings: Settings, bits: int, loss: str) -> Result:
    """The inner loop alone, on weights that are already in memory."""
    import numpy as np

    from steepest import kernels

    X, y = load_rows(settings, bits=bits)
    choices = kernels.LinearChoices(
        solver=0, loss={"hinge": 0, "log": 2}[loss], loss_parameter=0.0, target_kind=0, schedule=2, eta0=1.0, power=1.0,
        alpha=ALPHA, l1=0.0, l2=ALPHA, truncate_below=np.inf, truncate_every=1, average=0, batch_size=1,
        bias_scale=-1.0,
    )  # fmt: skip
    rows = kernels.Rows(X.indptr.astype(np.int64), X.indices, X.data, y.astype(np.float64))
    v, times = np.empty(2**bits, np.float32), []
    for _ in range(3):
        v[:] = 0
        clock = np.array([0, 0, 1, 0, 0, 0, 0], np.float64)  # the third is the scale of v
        state = kernels.LinearState(v, *np.zeros((3, 1)), clock)
        times.append(seconds_of(partial(kernels.linear_learn, rows, state, choices)))
    return speeds(statistics.median(times), X)


def large_job(bits: int, most: float) -> Job:
    runners: dict[str, Callable[[Settings], Result]] = {}
    for loss in ("hinge", "log"):
        runners[f"steepest fit, {loss}"] = partial(epoch, make=steepest_model, loss=loss, bits=bits)
        runners[f"steepest kernel, {loss}"] = partial(kernel, loss=loss, bits=bits)
        runners[f"scikit-learn float32, {loss}"] = partial(epoch, make=sklearn_model, loss=loss, bits=bits)
    ours = [runner for runner in runners if runner.startswith("steepest")]
    return Job(runners, [value_of(runner, "ns/nnz", "at most", most) for runner in ours])


def parse(settings: Settings, read: Callable[[Path], int]) -> Result:
    path = text_path(settings.text_rows, "svm")
    read(text_path(TEST_ROWS, "svm", "test"))  # imports and first calls
    warm(path)
    start = time.process_time()
    entries = read(path)
    seconds = time.process_time() - start
    return {"seconds": seconds, "MB/s": path.stat().st_size / seconds / 1e6, "entries": entries}


def warm(path: Path) -> None:
    """Brings a file into the page cache, a piece at a time: this process must stay small."""
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


def steepest_read(path: Path) -> int:
    import steepest as st

    return sum(int(chunk.indptr[-1] - chunk.indptr[0]) for chunk in st.scan_libsvm(path))


def sklearn_read(path: Path) -> int:
    from sklearn.datasets import load_svmlight_file

    return int(load_svmlight_file(str(path), dtype="float32")[0].nnz)


def parse_job() -> Job:
    def difference(results: dict[str, Result]) -> float:
        return abs(results["steepest"]["entries"] - results["scikit-learn"]["entries"])

    targets = [value_of("steepest", "MB/s", "at least", 500), faster_than("scikit-learn", 20)]
    targets.append(Target("entries read otherwise than scikit-learn", difference, "at most", 0))
    return Job(
        {"steepest": partial(parse, read=steepest_read), "scikit-learn": partial(parse, read=sklearn_read)}, targets
    )


def error_of(predictions: Path) -> float:
    """Percent of the held-out rows whose predicted number has the wrong sign."""
    with open(text_path(TEST_ROWS, "svm", "test")) as file:
        labels = [int(line.split(maxsplit=1)[0]) for line in file]
    scores = [float(line.split()[0]) for line in predictions.read_text().splitlines()]
    return 100 * statistics.mean(label * score <= 0 for label, score in zip(labels, scores, strict=True))


def stream(settings: Settings, module: str, train: str, predict: str, suffix: str, part: int = 1) -> Result:
    data = text_path(settings.rows // part, suffix)
    warm(data)
    with tempfile.TemporaryDirectory() as folder:
        scores = Path(folder, "scores")
        names = {"DATA": data, "MODEL": Path(folder, "m.steepest"), "SCORES": scores}
        names["TEST"] = text_path(TEST_ROWS, suffix, "test")
        trained = run_python("-m", module, *(names.get(word, word) for word in train.split()))
        run_python("-m", module, *(names.get(word, word) for word in predict.split()))
        error = error_of(scores)
    speed = data.stat().st_size / trained.seconds / 1e6
    figures = {"MB/s": speed, "CPU s": trained.cpu_seconds, "% test error": error}
    return {"seconds": trained.seconds, "peak_mb": trained.peak_mb, **figures}


def stream_job() -> Job:
    ours = partial(
        stream,
        module="steepest",
        train=f"train DATA -m MODEL --loss hinge --alpha {ALPHA:g} --epochs 1 --no-fit-intercept",
        predict="predict MODEL TEST -o SCORES",
        suffix="svm",
    )
    vw = partial(
        stream,
        module="vowpalwabbit",
        train=f"-d DATA -f MODEL --loss_function hinge --l2 {ALPHA:g} -b 17 --noconstant --holdout_off --quiet",
        predict="-t -d TEST -i MODEL -p SCORES --quiet",
        suffix="vw",
    )

    def growth(results: dict[str, Result]) -> float:
        return results["steepest"]["peak_mb"] / results["steepest, half the rows"]["peak_mb"]

    targets = [faster_than("vw, no cache", 4), value_of("steepest", "peak_mb", "at most", 200)]
    targets.append(Target("times the memory for twice the rows", growth, "at most", 1.1))
    return Job({"steepest": ours, "steepest, half the rows": partial(ours, part=2), "vw, no cache": vw}, targets)


def launch(settings: Settings, code: str) -> Result:
    return {"seconds": statistics.median(run_python("-c", code).seconds for _ in range(settings.launches))}


def launch_predict(settings: Settings) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        data, model = Path(folder, "ten.svm"), Path(folder, "ten.steepest")
        data.write_text("1 1:1.0 3:0.5\n-1 2:1.0 3:0.5\n" * 5)
        run_python("-m", "steepest", "train", data, "-m", model)
        predict = partial(run_python, "-m", "steepest", "predict", model, data)
        return {"seconds": statistics.median(predict().seconds for _ in range(settings.launches))}


def start_job() -> Job:
    tiny = "X, y = [[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 0, 1]"
    fit = f"import steepest as st; {tiny}; st.LinearClassifier(epochs=1).fit(X, y)"
    peer = f"from sklearn.linear_model import SGDClassifier; {tiny}; SGDClassifier(max_iter=1, tol=None).fit(X, y)"
    runners = {
        "steepest import and fit": partial(launch, code=fit),
        "steepest predict, ten rows": launch_predict,
        "import numpy": partial(launch, code="import numpy"),
        "scikit-learn import and fit": partial(launch, code=peer),
    }

    def times_numpy(runner: str, most: float) -> Target:
        def ratio(results: dict[str, Result]) -> float:
            return results[runner]["seconds"] / results["import numpy"]["seconds"]

        return Target(f"times `import numpy`, {runner}", ratio, "at most", most)

    return Job(runners, [times_numpy("steepest import and fit", 2), times_numpy("steepest predict, ten rows", 3)])


def predict(
    settings: Settings, make: Callable[..., Any], method: str = "predict", dtype: str = "float32", batch: int = 0
) -> Result:
    X, y = load_rows(settings, dtype)
    call = getattr(make("hinge", epochs=1).fit(X[:20_000], y[:20_000]), method)
    if batch:
        X = X[:20_000]
    batches = [X[start : start + batch] for start in range(0, X.shape[0], batch)] if batch else [X]
    call(X[:1000])
    return speeds(seconds_of(lambda: [call(rows) for rows in batches]), X)


def read_only(settings: Settings) -> Result:
    """What no prediction can undercut: every index and every value looked at once, by vector instructions."""
    X, _ = load_rows(settings)
    return speeds(statistics.median(seconds_of(lambda: (X.indices.max(), X.data.max())) for _ in range(3)), X)


def predict_job(batch: int) -> Job:
    runners = {
        "steepest predict": partial(predict, make=steepest_model, batch=batch),
        "steepest decision_function": partial(predict, make=steepest_model, batch=batch, method="decision_function"),
        "scikit-learn predict float32": partial(predict, make=sklearn_model, batch=batch),
        "scikit-learn predict float64": partial(predict, make=sklearn_model, batch=batch, dtype="float64"),
    }
    if not batch:
        runners["the arrays read, no more"] = read_only
    return Job(runners, [faster_than("scikit-learn predict float32", 5)])


JOBS = {
    "epoch-hinge": epoch_job("hinge"),
    "epoch-log": epoch_job("log"),
    **objective_jobs(),
    "large-22": large_job(22, most=5),
    "large-24": large_job(24, most=8),
    "parse": parse_job(),
    "stream": stream_job(),
    "start": start_job(),
    "predict": predict_job(batch=0),
    "predict-1000": predict_job(batch=1000),
}


def prepare(settings: Settings, jobs: list[str]) -> None:
    """Data and optima, made once, in processes of their own: this one must stay small."""
    texts = [settings.rows, settings.rows // 2] if "stream" in jobs else []
    texts += [settings.text_rows] if "parse" in jobs else []
    bits = [job.removeprefix("large-") for job in jobs if job.startswith("large-")]
    sizes = ["--rows", settings.rows, "--large-rows", settings.large_rows]
    print(run_python("-m", "benchmarks.generate", *sizes, "--text", *texts, "--bits", *bits).output.strip())
    for job, loss in {"objective": "hinge", "objective-log": "log"}.items():
        if job in jobs and not optimum_path(loss, settings.rows).exists():
            call = f"from benchmarks.linear import Settings, find_optimum; find_optimum({loss!r}, {settings})"
            ended = run_process([sys.executable, "-c", call])
            print(f"the optimum of {loss}: {'found' if ended.code == 0 else 'not found'} ({ended.seconds:.0f} s)")


if __name__ == "__main__":
    sys.exit(main("benchmarks.linear", JOBS, prepare, full=FULL, quick=QUICK))
