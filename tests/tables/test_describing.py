from pathlib import Path

from tests.tables.helpers import NODES, imported


def test_everything_that_was_done_is_said(tmp_path: Path) -> None:
    found = imported(tmp_path, ratio=(50, 25, 25))
    assert [note.replace(f"{tmp_path}/", "") for note in found.notes] == [
        "guessed from the names of the columns: `--id id`, `--label label`, `--source source`, `--target target`",
        "5 nodes from `nodes.csv`, with their ids in `id`",
        "5 features: numbers, scaled to mean 0 and deviation 1: age; categories, a 0 or 1 for every value: "
        "plan (2 values)",
        "missing values: 1 in age, 1 in plan; replaced by the mean or by no category, and marked by one more feature",
        "2 classes from label: blue (2), red (2); 1 of 5 nodes have no label",
        "split 50/25/25, stratified by class, seed 0: 2 train, 1 val, 1 test",
        "5 rows from `edges.csv`, from `source` to `target`: 2 different edges, which count in both directions",
        "2 rows repeat an edge or give its other direction; an edge counts once",
        "1 rows join a node to itself; every node has such an edge anyway",
        "2 nodes have no edge to another node",
    ]
    assert found.facts == {
        "nodes": 5,
        "edges": 2,
        "features": 5,
        "task": "single-label",
        "outputs": 2,
        "train": 2,
        "val": 1,
        "test": 1,
        "unlabeled": 1,
        "repeated": 2,
        "self_loops": 1,
        "dropped": 0,
        "isolated": 2,
    }


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    edges = "source,target,kind,weight\na,b,x,1\na,q,y,2\n"
    found = imported(tmp_path, NODES, edges, ignore=["age", "label"], structural=True, drop_unknown=True)
    notes = "\n".join(found.notes)
    assert "columns that are not used: age, label, kind" in notes
    assert "no labels, so that the graph serves for prediction alone; name their column with `--label`" in notes
    assert "1 rows name a node that is not in the table, and are dropped" in notes
    assert "to `target`, weighted by `weight`: 1 different edges" in notes
    assert "plan (2 values); the logarithm of the degree and 32 propagated random signs" in notes


def test_labels_of_every_task_are_described(tmp_path: Path) -> None:
    edges = "source,target\n1,2\n"
    several = imported(tmp_path, "id,x,y\n1,1,a;b\n2,2,b\n3,3,\n", edges).notes
    assert "2 labels from y, several per node: a (1), b (2); 1 of 3 nodes have no label" in several
    numbers = imported(tmp_path, "id,x,y\n1,1,0.5\n2,2,1\n3,3,2\n", edges).notes
    assert any(
        note.startswith("numbers from y, to be predicted as they are (`--task single-label`") for note in numbers
    )
    assert "split 60/20/20, at random, seed 0: 2 train, 1 val, 0 test" in numbers


def test_a_class_without_training_nodes_is_said(tmp_path: Path) -> None:
    nodes = "id,x,y,part\n1,1,a,train\n2,2,b,test\n3,3,a,val\n"
    notes = imported(tmp_path, nodes, "source,target\n1,2\n", split_column="part").notes
    assert "no training node has the class b" in notes
    assert "split by the column `part`: 1 train, 1 val, 1 test" in notes


def test_many_classes_are_cut_short(tmp_path: Path) -> None:
    nodes = "id,x,y\n" + "".join(f"{number},{number},c{number % 12:02d}\n" for number in range(36))
    notes = imported(tmp_path, nodes, "source,target\n1,2\n").notes
    assert any("12 classes from y: c00 (3), " in note and "c09 (3), ...;" in note for note in notes)
