"""Data for the tests: generated here, so that every test that matters runs anywhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

# A busy machine is no failure: no test asserts a time, and neither does hypothesis.
settings.register_profile("steepest", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("steepest")

# `make quick`: these directories and modules without the slow tests named behind them, and the promises of one small
# case per estimator. What it takes in all is less than two minutes of CPU time.
TESTS = Path(__file__).parent
QUICK = {
    "kernels": (
        "test_mutated_text_breaks_no_promise",
        "test_a_long_polynomial_average_forgets_nothing_else",
        "test_lazy_equals_eager",
        "test_instruction_sets_agree",
        "test_the_baseline_processor_learns_the_same",
    ),
    "features": (
        "test_every_character_is_classed_and_folded_as_unicode_says",
        "test_ten_thousand_columns",
        "test_the_shell_counts_collisions",
        "test_flags_train_predict_and_show",
        "test_importing_the_hasher_imports_nothing_heavy",
        "test_occupancy_is_that_of_random_throws",
        "test_arrays_name_rare_heavy_words",
        "test_streams_name_rare_heavy_words",
        "test_a_model_uses_the_shape_and_says_so",
    ),
    "data/test_streaming.py": (
        "test_batch_solvers_take_no_memory_for_the_rows_of_a_file",
        "test_memory_does_not_grow_with_the_number_of_rows",
        "test_rows_that_are_kept_stay_within_the_promise",
        "test_importing_and_fitting_start_nothing_heavy",
    ),
    "data": (
        "test_features_have_their_names_back",
        "test_every_changed_byte_is_noticed",
        "test_every_truncation_is_noticed",
        "test_real_files_are_read_as_scikit_learn_reads_them",
        "test_a_quote_that_is_never_closed",
        "test_a_column_that_changes_its_kind_in_mid_file_does_not_stop_training",
        "test_memory_does_not_grow_with_the_rows",
        "test_both_libraries_unpack_gzip_alike_and_find_the_same_faults",
        "test_without_pyarrow_the_message_names_the_extra",
        "test_a_killed_builder_leaves_nothing_that_is_believed",
    ),
    "learners/test_losses.py": (),
    "learners/test_penalties.py": (),
    "learners/test_schedules.py": (),
    "models/test_linear.py": (
        "test_every_rule_comes_near_the_optimum_of_every_binary_loss",
        "test_every_rule_comes_near_the_optimum_of_every_regression_loss",
    ),
    "promises/test_models_of_old.py": (),
    "promises/test_golden_predictions.py": (),
    "cli/test_cli.py": (
        "test_several_labels_of_a_stream_are_named_beforehand",
        "test_a_report_shows_losses_measures_and_weights",
        "test_help_tells_of_the_parameters_of_the_task",
        "test_a_model_reads_tables_with_other_delimiters",
        "test_numbers_taken_for_classes_lead_to_regression",
        "test_training_from_a_table_imports_only_what_it_needs",
    ),
    "test_model_file.py": (
        "test_a_reader_sees_complete_files_while_writers_are_killed",
        "test_random_damage_never_gives_another_model",
        "test_a_change_of_any_single_byte_never_gives_another_model",
        "test_memory_stays_a_small_multiple_of_a_refused_file",
        "test_foreign_and_hostile_files_are_refused_in_one_sentence",
    ),
    "test_atomic.py": (),
    "test_size.py": (),
    "test_words.py": (),
}
QUICK_CASES = {
    "linear/sgd-two",
    "linear/mixing-two",
    "linear/lbfgs",
    "linear/numbers",
    "ranker/blocks",
    "network/adam-four",
    "network/numbers",
    "fm/fields-four",
    "fm/numbers",
    "radial/closed-form-RBFClassifier",
    "radial/fixed-RBFRegressor",
    "k-means/minibatch-blobs",
    "text/softmax",
    "factors/sgd",
}


def is_quick(item):
    path = item.path.relative_to(TESTS)
    if path.as_posix() == "promises/test_promises.py":
        case = getattr(item, "callspec", None)
        return case is not None and case.params.get("name") in QUICK_CASES and "killed" not in item.name
    for place, slow in QUICK.items():
        if path.is_relative_to(place):
            return item.originalname not in slow
    return False


def pytest_configure(config):
    if config.option.markexpr == "quick":
        settings.load_profile("quick")


ON_DEMAND = ("hostile", "forged", "kills", "faults", "thorough")


@pytest.hookimpl(optionalhook=True)  # xdist is not needed to run the tests
def pytest_xdist_make_scheduler(config, log):
    """Groups of tests as in xdist's own `loadgroup`; but what is done is forgotten.

    xdist counts what is still to do, after every test, over all groups that a process was ever given.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler.loadgroup import LoadGroupScheduling

    class ForgetfulScheduling(LoadGroupScheduling):
        def mark_test_complete(self, node, item_index, duration=0):
            name = self.registered_collections[node][item_index]
            groups, group = self.assigned_work[node], self._split_scope(name)
            groups[group][name] = True
            if all(groups[group].values()):
                del groups[group]
            self._reschedule(node)

    return ForgetfulScheduling(config, log)


def pytest_collection_modifyitems(config, items):
    for item in filter(is_quick, items):
        item.add_marker("quick")
    for name in ON_DEMAND:
        if name not in config.option.markexpr:
            items[:] = [item for item in items if item.get_closest_marker(name) is None]
    items.sort(key=starts_after)


def starts_after(item):
    """What waits most, for Spark or a compiler, starts first: in the end it would be alone."""
    group = item.get_closest_marker("xdist_group")
    is_of_spark = group is not None and group.args[0].startswith("spark")
    return not is_of_spark, item.get_closest_marker("build") is None


def solver_pairs():
    """Every batch solver, loss and penalty, with the reason where they cannot work together; lp with p = 3."""
    from steepest.learners.batch.solvers import BATCH_SOLVERS, refusal
    from steepest.learners.losses import LOSSES
    from steepest.learners.penalties import PENALTIES

    return [
        {"solver": solver, "loss": loss, "penalty": penalty, "refused": refusal(solver, loss, penalty, 3.0)}
        for solver in BATCH_SOLVERS
        for loss in LOSSES
        for penalty in PENALTIES
    ]


def sparse_problem(n_rows=600, n_features=200, n_classes=2, density=0.06, noise=0.05, seed=0):
    """Unit sparse rows, labels from a planted linear rule with some flipped."""
    rng = np.random.default_rng(seed)
    X = sp.random(n_rows, n_features, density=density, format="csr", dtype=np.float32, random_state=rng)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sp.csr_matrix(sp.diags(1 / np.where(norms > 0, norms, 1)) @ X).astype(np.float32)
    W = rng.standard_normal((n_features, n_classes))
    y = np.asarray(X @ W).argmax(axis=1)
    flipped = rng.random(n_rows) < noise
    y[flipped] = rng.integers(0, n_classes, flipped.sum())
    return X, y


@pytest.fixture(scope="session")
def binary():
    return sparse_problem()


@pytest.fixture(scope="session")
def multiclass():
    return sparse_problem(n_classes=4, seed=1)


@pytest.fixture(scope="session")
def regression():
    X, _ = sparse_problem(seed=2)
    rng = np.random.default_rng(3)
    y = X @ rng.standard_normal(X.shape[1]) + 0.1 * rng.standard_normal(X.shape[0]) + 3.0
    return X, y


@pytest.fixture(scope="session")
def spark_env():
    """The environment of every process of Spark's; its Java is told to compile quickly rather than well."""
    here = os.pathsep.join(path for path in sys.path if path)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": here}
    return {**os.environ, **own, "JDK_JAVA_OPTIONS": quick}


@pytest.fixture(scope="session")
def spark(spark_env):
    """A session on two threads of this machine, for all tests that need one."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_env.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data sets, which are not part of the project."""
    folder = Path(os.environ.get("STEEPEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}; set STEEPEST_DATA to where they are")
    return folder


def kill_driver(monkeypatch, in_run):
    """The driver of a Spark fit dies in its n-th run from now on, for None in no run; the list grows by every run."""
    from steepest.spark.shards import Shards

    real, runs = Shards.run_anew, []

    def mortal(shards, *given):
        runs.append(1)
        if len(runs) == in_run:
            raise KeyboardInterrupt
        return real(shards, *given)

    monkeypatch.setattr(Shards, "run_anew", mortal)
    return runs
