"""`docs/reproduction.md`, made of the summaries in `docs/tables`."""

import textwrap
from pathlib import Path

from common.summary import TABLES, Summary, known_summary, markdown_table
from experiments.paper.commands import EXPERIMENTS
from experiments.paper.frame import Experiment

PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"
_WIDTH = 118
_HEAD = """\
# The paper, reproduced

<!-- made by `python -m experiments tables --write` from docs/tables; do not edit -->

Every table and figure of the [paper](paper.md) is one command. A command trains what has not been trained yet, prints a
table with the published numbers beside ours, and says from the numbers whether the claims of the paper hold.

## Run one

```console
$ make install                                   # once
$ .venv/bin/python -m experiments all --quick    # every table on a tiny graph, one minute: to see that it works
$ .venv/bin/python -m experiments figure1        # Figure 1 on a laptop, two minutes; downloads Cora
$ .venv/bin/python -m experiments table1 --datasets cora --seeds 1 --workers 2    # half an hour on a laptop
```

A command prints the section below that has its name: the table, then one line for each claim. It writes the picture to
`runs/experiments/NAME.png`, and every run to `runs/experiments` as soon as it ends. After an interruption, give the
same command again: what is stored is not trained again.

| option | meaning |
| --- | --- |
| `--datasets a,b` | graphs, by name or path |
| `--system NAME` | a row of the table; repeatable |
| `--seeds N` | seeds 0 to N-1 |
| `--device cuda` | `auto`, `cpu` or `cuda` |
| `--workers N` | runs at a time on one device; timed runs are alone |
| `--root FOLDER` | folder of data files; by default `$LAZYGNN_DATA`, or `data` |
| `--stored` | train nothing; a cell with a missing run stays empty |
| `--quick` | two epochs on a tiny graph, to try the command; the verdicts then mean nothing |
| `--save` | write summary and picture into `docs`; cells that are empty keep what is there |

**Your data.** Reddit, Flickr, Yelp, ogbn-arxiv and ogbn-products load by name, with the settings of the paper and of
its released code as recipes: `python -m experiments table1 --datasets ogbn-arxiv`.

**The search.** Section 4.1 of the paper lists the values that it searched for LazyGNN:
`lazygnn tune lazygnn-paper ogbn-arxiv --space paper --trials 30` searches them, by validation score.

**Our data.** The features of ogbn-arxiv and Flickr could not be had here. `arxiv` has the graph, labels and split of
ogbn-arxiv with [other features](results.md#the-graphs). `flickr_graph` has the graph, labels and split of Flickr with
structural features: the logarithm of the degree and propagated random signs. So scores on them are not comparable with
published ones; differences between systems are. `humloc`, with several labels a node, stands in the place of Yelp.
Table 2 measures time and memory on random graphs of the shapes of the paper's data sets, `cost` on graphs of Table 1.
Cora, CiteSeer and PubMed are downloaded when first used. The other graphs of these tables are
[files that are not downloaded](results.md#the-graphs): without them, name graphs that you have by `--datasets`.

**Verdicts.** A claim is *reproduced* if it holds on all graphs, and *in part* if it holds on at least half of them.
Scores are compared up to the standard error of a difference. Other tolerances are in the claim or above the table.
After `±` is the standard deviation over seeds. `LazyGNN` is the method as published (`lazygnn-paper`), `ours` is this
library's `lazygnn` or, where it says so, `lazygnn-deep`. A *part* is a cluster of the paper: nodes that METIS puts
together.
"""


def page(folder: Path = TABLES) -> str:
    """Returns the page for the summaries of a folder; a table without one has its command alone."""
    made = {name: found for name in EXPERIMENTS if (found := known_summary(name, folder)) is not None}
    sections = [section(name, experiment, made.get(name)) for name, experiment in EXPERIMENTS.items()]
    return "\n".join([_HEAD, overview(made), *sections])


def overview(made: dict[str, Summary]) -> str:
    """Returns all claims and what became of them."""
    rows = [
        [f"[{name}](#{anchor(EXPERIMENTS[name].title)})", verdict.claim, verdict.outcome]
        for name, summary in made.items()
        for verdict in EXPERIMENTS[name].judge(summary)
    ]
    return f"## All verdicts\n\n{markdown_table(['table', 'claim', 'verdict'], rows)}\n" if rows else ""


def section(name: str, experiment: Experiment, summary: Summary | None) -> str:
    """Returns the section of a table or figure."""
    command = f"```console\n$ python -m experiments {name}    # {experiment.time}\n```"
    parts = [f"## {experiment.title}", _filled(experiment.about), command]
    if summary is None:
        return "\n\n".join([*parts, "Not run yet.\n"])
    parts += [
        f"<!-- table: {name} -->\n{summary.markdown()}\n<!-- end -->",
        "\n".join(_filled(verdict.markdown(), "  ") for verdict in experiment.judge(summary)),
        f"![{experiment.title}](images/{name}.png)",
        f"{_filled(made_by(summary))}\n",
    ]
    return "\n\n".join(parts)


def made_by(summary: Summary) -> str:
    """Returns how a table was made: command, commits and machines."""
    commits = ", ".join(sorted({source["commit"] for source in summary.sources}))
    machines = "; ".join(sorted({source["machine"] for source in summary.sources}))
    torch = ", ".join(sorted({source["torch"] for source in summary.sources}))
    return f"Made by `{summary.origin}` at commit {commits}, on {machines}, torch {torch}."


def anchor(title: str) -> str:
    """Returns the anchor of a heading on the site."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return "-".join(kept.split())


def outdated(file: Path = PAGE, folder: Path = TABLES) -> dict[Path, str]:
    """Returns the page and the content it should have, if that differs."""
    wanted = page(folder)
    found = file.read_text() if file.is_file() else ""
    return {} if found == wanted else {file: wanted}


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
