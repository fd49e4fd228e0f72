"""What the reproductions share."""

from experiments.paper.frame import cells_of, measured, table
from experiments.paper.table1 import EXPERIMENT as TABLE1
from experiments.paper.table2 import EXPERIMENT as TABLE2

RUN = {"commit": "1", "machine": "m"}


def test_published_numbers_stand_beside_those_of_the_same_graph() -> None:
    found = {
        ("ours", "arxiv"): [{"test": 0.7} | RUN, {"test": 0.8} | RUN],
        ("ours", "dblp"): None,
        ("GCN", "arxiv"): [{"test": 0.6} | RUN],
        ("GCN", "dblp"): [{"test": 0.5} | RUN],
    }
    made = table("system", ["GCN", "ours"], ["arxiv", "dblp"], found, {"GCN": {"ogbn-arxiv": 71.6, "Yelp": "OOM"}})
    assert made.markdown().splitlines() == [
        "| system | arxiv | paper: ogbn-arxiv | dblp |",
        "| --- | --- | --- | --- |",
        "| GCN | 60.00 | 71.6 | 50.00 |",
        "| **ours** | 75.00 ± 7.07 |  |  |",
    ]
    assert measured(made) == ["arxiv", "dblp"]
    assert cells_of(made, "dblp").keys() == {"GCN"}


def test_graphs_are_those_that_are_given_where_an_experiment_can_take_them() -> None:
    assert TABLE1.graphs(["cora"], quick=False, alone=False) == ["cora"]
    assert TABLE2.graphs(["cora"], quick=False, alone=False) == ("products",)
    assert TABLE2.graphs(["reddit"], quick=True, alone=True) == ["reddit"]
    assert TABLE2.graphs([], quick=True, alone=True) == ("tiny",)
