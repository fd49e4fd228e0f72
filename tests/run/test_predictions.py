import csv
import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.run.predictions import check_format, labeled_nodes, prediction_table, with_known, write_table
from lazygnn.task import Task
from lazygnn.training.metrics import find_metric, predict_class

LOGITS = torch.tensor([[0.0, 1.0986123], [2.0, 0.6137056], [1.0, 0.0], [0.0, 0.0]])


@pytest.fixture
def graph(path_graph: Graph) -> Graph:
    return replace(path_graph, node_ids=np.array(["ann", "bob, jr.", 'c"d', "eve"]))


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_one_label_with_names(graph: Graph) -> None:
    table = prediction_table(LOGITS, graph, graph.task, ("cat", "dog"))
    assert list(table) == ["node", "prediction", "probability"]
    assert table["node"].tolist() == ["ann", "bob, jr.", 'c"d', "eve"]
    assert table["prediction"].tolist() == ["dog", "cat", "cat", "cat"]
    assert table["probability"].tolist() == pytest.approx([0.75, 0.8, 0.7310586, 0.5])


def test_one_label_without_names(path_graph: Graph) -> None:
    table = prediction_table(LOGITS, path_graph, path_graph.task, None)
    assert table["node"].tolist() == [0, 1, 2, 3]
    assert table["prediction"].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(("names", "suffixes"), [(None, ["_0", "_1"]), (("cat", "dog"), ["_cat", "_dog"])])
def test_several_labels_are_several_columns(
    path_graph: Graph, names: tuple[str, ...] | None, suffixes: list[str]
) -> None:
    # the third node has a logit of zero
    table = prediction_table(LOGITS - 1, path_graph, Task("multi-label", 2), names)
    first, second = suffixes
    columns = ["node", *(f"{kind}{suffix}" for suffix in suffixes for kind in ("prediction", "probability"))]
    assert list(table) == columns
    assert table[f"prediction{first}"].tolist() == [0, 1, 0, 0]
    assert table[f"prediction{second}"].tolist() == [1, 0, 0, 0]
    expected = torch.sigmoid(LOGITS[:, 0] - 1).tolist()
    assert table[f"probability{first}"].tolist() == pytest.approx(expected)


def test_predictions_are_those_that_metrics_count(path_graph: Graph) -> None:
    # probabilities of 0.5: a logit of zero is not a predicted label, and one that the probability rounds away is
    logits = torch.tensor([[0.0, 1e-9], [1e-9, 0.0], [-0.0, -1e-9], [1e-9, 1e-9]])
    task = Task("multi-label", 2)
    several = prediction_table(logits, path_graph, task, None)
    for column in (0, 1):
        assert several[f"probability_{column}"].tolist() == [0.5] * 4
        assert several[f"prediction_{column}"].tolist() == task.predict_labels(logits)[:, column].int().tolist()
    assert several["prediction_0"].tolist() == [0, 1, 0, 1]
    single = prediction_table(logits, path_graph, Task("single-label", 2), None)
    assert single["probability"].tolist() == [0.5] * 4
    assert single["prediction"].tolist() == predict_class(logits).tolist() == [1, 0, 0, 0]


def test_labels_above_the_threshold_are_predicted_at_any_temperature(path_graph: Graph) -> None:
    logits = torch.tensor([0.1, 0.29, 0.31, 0.9]).logit()[:, None]
    task = Task("multi-label", 1, threshold=0.3)
    plain = prediction_table(logits, path_graph, task, None)
    assert plain["prediction_0"].tolist() == [0, 0, 1, 1]
    assert plain["probability_0"].tolist() == pytest.approx([0.1, 0.29, 0.31, 0.9])
    calibrated = prediction_table(logits, path_graph, task, None, temperature=4.0)
    assert calibrated["prediction_0"].tolist() == [0, 0, 1, 1]
    assert calibrated["probability_0"].tolist() == pytest.approx((logits[:, 0] / 4).sigmoid().tolist())


def test_the_score_of_a_table_is_that_of_the_metric(path_graph: Graph) -> None:
    logits, y = torch.tensor([[0.0], [0.0], [1.0], [-1.0]]), torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    task = Task("multi-label", 1)
    predicted = prediction_table(logits, path_graph, task, None)["prediction_0"]
    assert find_metric("micro-f1", task)[1](logits, y) == f1_score(y[:, 0], predicted) == 2 / 3


def test_numbers_have_no_probability(path_graph: Graph) -> None:
    table = prediction_table(LOGITS, path_graph, Task("regression", 2), None)
    assert list(table) == ["node", "prediction_0", "prediction_1"]
    assert table["prediction_1"].tolist() == LOGITS[:, 1].tolist()


def test_csv_quotes_what_needs_quotes(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_table(prediction_table(LOGITS, graph, graph.task, ("cat", "dog")), path)
    rows = read_csv(path)
    assert rows[0] == ["node", "prediction", "probability"]
    assert [row[:2] for row in rows[1:]] == [["ann", "dog"], ["bob, jr.", "cat"], ['c"d', "cat"], ["eve", "cat"]]
    assert float(rows[1][2]) == pytest.approx(0.75)


def test_csv_is_in_utf_8_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    script = (
        "import sys; from pathlib import Path; import numpy as np; from lazygnn.run.predictions import write_table; "
        "write_table({'node': np.array([chr(0x65E5)])}, Path(sys.argv[1]))"
    )
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", script, str(path)], env=plain, check=True)
    assert path.read_text(encoding="utf-8") == "node\n\u65e5\n"


def test_parquet_holds_the_same_columns(graph: Graph, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    table = prediction_table(LOGITS, graph, graph.task, ("cat", "dog"))
    write_table(table, path)
    assert parquet.read_table(path).to_pydict() == {name: column.tolist() for name, column in table.items()}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table.txt", r"cannot write `.*table.txt`; choose a name that ends in .csv or .parquet"),
        ("table", r"cannot write `.*table`; choose a name that ends in .csv or .parquet"),
        ("gone/table.csv", r"cannot write `.*table.csv`: the folder `.*gone` does not exist; create it first"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, name: str, message: str) -> None:
    check_format(tmp_path / "table.csv")
    with pytest.raises(ConfigError, match=message):
        check_format(tmp_path / name)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"Parquet needs `pyarrow`; install `lazygnn\[parquet\]` or write .csv"):
        check_format(tmp_path / "table.parquet")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_that_cannot_be_completed_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"table.{suffix}"
    table = {"node": np.arange(3), "prediction": np.arange(3)}
    write_table(table, path)
    before = path.read_bytes()

    def fail(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(
        ConfigError, match=r"cannot write `.*table.*`: .*no space left on device; choose another `--out`"
    ):
        write_table({name: column[:1] for name, column in table.items()}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_columns_of_different_lengths_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shorter"):
        write_table({"node": np.arange(3), "prediction": np.arange(2)}, tmp_path / "table.csv")
    assert list(tmp_path.iterdir()) == []


def test_every_class_has_a_probability_on_request(graph: Graph) -> None:
    table = prediction_table(LOGITS, graph, graph.task, ("cat", "dog"), probabilities=True)
    assert list(table)[2:] == ["probability", "probability_cat", "probability_dog"]
    assert (table["probability_cat"] + table["probability_dog"]).tolist() == pytest.approx([1] * 4)
    assert np.maximum(table["probability_cat"], table["probability_dog"]).tolist() == table["probability"].tolist()
    assert "probability_1" in prediction_table(LOGITS, graph, graph.task, None, probabilities=True)


def test_split_and_label_are_empty_where_they_are_unknown(graph: Graph) -> None:
    partly = replace(graph, y=torch.tensor([0, -1, 1, -1]), masks={"train": torch.tensor([True, False, False, False])})
    table = with_known({"node": np.arange(4)}, partly, ("cat", "dog"))
    assert table["split"].tolist() == ["train", "", "", ""]
    assert table["label"].tolist() == ["cat", "", "dog", ""]
    assert with_known({}, partly, None)["label"].tolist() == ["0", "", "1", ""]
    assert labeled_nodes(partly).tolist() == [True, False, True, False]


def test_several_labels_and_numbers_are_known_by_column(graph: Graph) -> None:
    numbers = replace(graph, y=torch.tensor([[1.5], [float("nan")], [2.0], [0.0]]), task=Task("regression", 1))
    assert with_known({}, numbers, None)["label_0"].tolist() == ["1.5", "", "2.0", "0.0"]
    labels = replace(
        graph, y=torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, -1.0], [1.0, 1.0]]), task=Task("multi-label", 2)
    )
    assert with_known({}, labels, ("cat", "dog"))["label_cat"].tolist() == ["1", "0", "", "1"]
    # a new graph without labels takes the task of training
    several = replace(graph, y=torch.full((4,), -1), task=Task("multi-label", 2))
    table = with_known({}, several, ("cat", "dog"))
    assert table["label_cat"].tolist() == table["label_dog"].tolist() == [""] * 4
    assert not labeled_nodes(several).any()
