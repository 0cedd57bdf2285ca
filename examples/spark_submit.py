"""A job for spark-submit: Parquet in, a model file out.

spark-submit --master spark://host:7077 examples/spark_submit.py data/*.parquet model.steepest
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import steepest as st


def main(words: list[str]) -> None:
    if len(words) < 2:
        sys.exit("give Parquet files with a column called label, and the name of the model to write")
    *paths, out = words
    session = SparkSession.builder.appName("steepest").getOrCreate()
    df = session.read.parquet(*paths)
    model = st.LinearClassifier(random_state=0)
    st.fit_spark(model, df, features=[name for name in df.columns if name != "label"], label="label", n_shards=16)
    for record in model.history_:
        print(f"round {record['epoch']}: loss {record['loss']:.5f}, {record['seconds']:.2f} s")
    model.save(out)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
