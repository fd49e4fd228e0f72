"""The staleness tables of the docs: which cases, graphs and seeds they show."""

from collections.abc import Sequence
from types import MappingProxyType

from experiments.cases import DATASETS, DEFAULT, EXACT
from experiments.staleness import Line, Seeds, Table, diagnostics, differences, equal_time, scores

PAPER = "the paper: mix 0.5, 2 steps"
DRAWN = (EXACT, PAPER, "drift and mix, 2 steps", DEFAULT)
FIVE: Seeds = MappingProxyType(dict.fromkeys(DATASETS, range(5)))
FIRST: Seeds = MappingProxyType(dict.fromkeys(DATASETS, range(1)))
# small validation sets need more seeds
MANY: Seeds = MappingProxyType({name: range(20 if name in ("arxiv", "wordnet") else 40) for name in DATASETS})


def _default(case: str) -> str:
    return f"{case}: the default" if case == DEFAULT else ""


def _lines(cases: Sequence[str], seeds: Seeds) -> list[Line]:
    return [Line(case, seeds, label=_default(case), bold=case == DEFAULT) for case in cases]


def _level(level: str, seeds: Seeds = MANY, split: str = "val") -> Line:
    case, default = f"fitted to {level}, 2 steps, and 1 on labels", level == "0.85"
    shown = "validation" if split == "val" else split
    return Line(case, seeds, label=f"{shown}, level {level}", split=split, bold=default)


def _parts(label: str, case: str, **seeds: Sequence[int]) -> Line:
    return Line(f"6 of 60 parts{case}", seeds, label=label)


TABLES = {
    "staleness": Table(
        "case, validation",
        [
            *_lines(
                [
                    *DRAWN,
                    "fitted to 0.8, 2 steps, and 1 on labels",
                    *(f"fitted to {level}, 2 steps" for level in ("0.6", "0.7", "0.8", "0.85", "0.9")),
                    *(f"fitted to {level}, 1 step" for level in ("0.6", "0.8")),
                    *(f"fitted to {level}, 1 step, and 1 on labels" for level in ("0.7", "0.8", "0.85")),
                ],
                FIVE,
            ),
            *(
                Line(case, dict.fromkeys(DATASETS, range(3)), label=f"{case} (3 seeds)")
                for case in ("the paper: mix 0.5, 2 steps, rate 0.002", "fitted to 0.8, 2 steps, cosine")
            ),
        ],
        scores,
    ),
    "staleness-seeds": Table("case, validation", _lines([EXACT, DEFAULT], MANY), scores),
    "staleness-levels": Table(
        "level, minus exact / ratio of deviations",
        [
            *(_level(level) for level in ("0.8", "0.85", "0.9")),
            _level("1.0", {**MANY, "arxiv": range(10), "wordnet": range(10)}),
            _level("0.85", split="test"),
        ],
        differences,
    ),
    "staleness-equal-time": Table("case, seed 0", _lines(DRAWN, FIRST), equal_time),
    "staleness-diagnostics": Table(
        "case, seed 0, last epoch",
        _lines([*DRAWN[1:], "fitted to 0.8, 2 steps", "fitted to 0.85, 1 step, and 1 on labels"], FIRST),
        diagnostics,
    ),
    "staleness-batch-norm": Table(
        "case, validation",
        [
            *_lines(
                [
                    *DRAWN[:3],
                    "fitted to 0.8, 2 steps",
                    "fitted to 0.9, 2 steps",
                    "fitted to 0.8, 1 step",
                ],
                FIVE,
            ),
            *(
                Line(case, dict.fromkeys(DATASETS, range(10)), label=f"{case} (10 seeds)")
                for case in (EXACT, "fitted to 0.8, 2 steps")
            ),
            Line("2 of 20 parts, fitted to 0.8, 4 steps", {"arxiv": range(5), "wordnet": range(5), "cora": range(2)}),
        ],
        scores,
        "batch",
    ),
    "staleness-minibatch": Table(
        "case, validation",
        [
            Line(DEFAULT, MANY, label="full batch, the default"),
            _parts("halo gradients, 200 epochs", ", halo gradients", **dict.fromkeys(DATASETS, range(3))),
            _parts("halo gradients, 100 epochs", ", halo gradients, 100 epochs", coauthor_cs=range(3)),
            _parts(
                "halo gradients, 40 epochs",
                ", halo gradients, 40 epochs",
                cora=range(10),
                pubmed=range(5),
                coauthor_cs=range(1, 4),
            ),
            _parts(
                "halo gradients, rate 0.003, 400 epochs",
                ", halo gradients, 400 epochs, rate 0.003",
                arxiv=range(3),
                wordnet=range(3),
                amazon_computers=range(3),
                coauthor_cs=range(3),
            ),
            _parts(
                "halo gradients, rate 0.003, 100 epochs",
                ", halo gradients, 100 epochs, rate 0.003",
                pubmed=range(5),
                coauthor_cs=range(5),
            ),
            _parts(
                "halo gradients, rate 0.003, 40 epochs",
                ", halo gradients, 40 epochs, rate 0.003",
                cora=range(10),
                pubmed=range(5),
            ),
            _parts(
                "no halo gradients, 40 epochs",
                ", 40 epochs",
                cora=range(10),
                pubmed=range(5),
                coauthor_cs=range(1, 5),
            ),
            _parts("no halo gradients, rate 0.003, 40 epochs", ", 40 epochs, rate 0.003", cora=range(10)),
        ],
        scores,
    ),
}
