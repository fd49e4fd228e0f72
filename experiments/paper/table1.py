"""Table 1: accuracy of every system, of two successors, and of ours."""

from pathlib import Path

from common.summary import Summary
from experiments.best import PARTS, PLANETOID, Case, best_runs
from experiments.paper.frame import Experiment, Plan, cells_of, measured, table
from experiments.paper.numbers import TABLE1
from experiments.paper.pictures import dots
from experiments.paper.verdict import Check, Verdict, at_least, close, judge

DATASETS = (
    "arxiv",
    "flickr_graph",
    "wordnet",
    "github_social",
    "coauthor_cs",
    "amazon_computers",
    "humloc",
    "pubmed",
    "citeseer",
    "cora",
)
FULL, MINI = "LazyGNN (full)", "LazyGNN (mini)"
OURS_FULL, OURS_MINI, OURS_DEEP = "ours (full)", "ours (mini)", "ours (deep)"
EXACT = "APPNP (full)"
SYSTEMS: dict[str, Case] = {
    "GraphSAGE": ("graphsage", {}),
    "FastGCN": ("fastgcn", {}),
    "LADIES": ("ladies", {}),
    "VR-GCN": ("vr-gcn", {}),
    "MVS-GNN": ("mvs-gnn", {}),
    "Cluster-GCN": ("cluster-gcn", PARTS),
    "GraphSAINT": ("graphsaint", {}),
    "SGC": ("sgc", {}),
    "SIGN": ("sign", {}),
    "VQ-GNN": ("vq-gnn", PARTS),
    "GCN (full)": ("gcn", {}),
    EXACT: ("appnp", {}),
    "GCNII (full)": ("gcnii", {}),
    "GCN (GAS)": ("gcn-gas", PARTS),
    "APPNP (GAS)": ("appnp-gas", PARTS),
    "GCNII (GAS)": ("gcnii-gas", PARTS),
    FULL: ("lazygnn-paper", {"num_parts": 1}),
    MINI: ("lazygnn-paper", PARTS),
    "GCN (GraphFM)": ("gcn-graphfm", PARTS),
    "GCN (LMC)": ("gcn-lmc", PARTS),
    OURS_FULL: ("lazygnn", {"num_parts": 1}),
    OURS_MINI: ("lazygnn", PARTS),
    OURS_DEEP: ("lazygnn-deep", {}),
}
# a system counts as the best of a graph only where these have been run
RIVALS = ("GraphSAGE", "GCN (full)", EXACT, "GCNII (full)")
# points by which mini-batch and full batch may differ; up to 0.6 in the paper
CLOSE = 1.0
# points below the best system that still count as the best; up to 1.1 in the paper
LEAD = 1.1


def run(plan: Plan) -> Summary:
    """Trains the missing runs and returns the table: test scores of the variant that validates best."""
    names = plan.chosen(SYSTEMS)
    cases = {name: SYSTEMS[name] for name in names}
    found = best_runs(cases, plan.datasets, plan.seeds, plan.place, recipe_alone=PLANETOID)
    return table("system", names, plan.datasets, found, TABLE1)


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts on the paper's system, then on ours."""
    columns = {dataset: cells_of(summary, dataset) for dataset in measured(summary)}

    def pairs(one: str, other: str) -> list[str]:
        return [dataset for dataset, cells in columns.items() if {one, other} <= cells.keys()]

    def exact(system: str) -> list[Check]:
        return [at_least(name, columns[name][system], columns[name][EXACT]) for name in pairs(system, EXACT)]

    def alike(mini: str, full: str) -> list[Check]:
        return [close(name, columns[name][mini], columns[name][full], CLOSE) for name in pairs(mini, full)]

    def lead(system: str) -> list[Check]:
        found = []
        for name, cells in columns.items():
            others = [cell["mean"] for label, cell in cells.items() if not label.startswith(("LazyGNN", "ours"))]
            if {system, *RIVALS} <= cells.keys():
                mean, best = cells[system]["mean"], max(others)
                found.append(Check(name, mean - best + LEAD, f"{mean:.2f} against {best:.2f} of the best other system"))
        return found

    return [
        judge("LazyGNN with 2 layers is at least as accurate as APPNP with 10", exact(FULL), _REACH),
        judge("Mini-batch LazyGNN is within a point of full batch", alike(MINI, FULL), _BATCHES),
        judge(f"LazyGNN is the best system, or within {LEAD} points of it", lead(FULL), _LAYERS),
        judge("Ours with 2 steps is at least as accurate as APPNP with 10", exact(OURS_FULL), _OURS),
        judge("Ours in mini-batches is within a point of full batch", alike(OURS_MINI, OURS_FULL), _BATCHES),
        judge(f"Our deep model is the best system, or within {LEAD} points of it", lead(OURS_DEEP), _LABELS),
    ]


_REACH = "half of every start value is fresh, so that a pass keeps half of what earlier ones have propagated"
_BATCHES = "batches change how often weights are updated and how old stored rows are when they are read"
_LAYERS = "layers that transform features between steps fit some graphs better than propagated scores can"
_OURS = "two steps from stored values follow a change of the weights with a delay"
_LABELS = "where labels are few, a small model is better"


def draw(summary: Summary, path: Path) -> None:
    """Draws the score of every system, a panel for each graph."""
    dots(summary, path, measured(summary), "test score (%)")


EXPERIMENT = Experiment(
    title="Table 1: accuracy",
    about=(
        "Every system of Table 1, the successors GraphFM and LMC, and ours: `ours (full)` and `ours (mini)` are the "
        "method `lazygnn`, `ours (deep)` is `lazygnn-deep`. A system takes the recipe of its authors, or the "
        "[rule](concepts/depth.md) for graphs without one, whichever validates better; on Cora, CiteSeer and PubMed "
        "the recipe alone, where there is one. Scores are means of three seeds. On Cora, CiteSeer and PubMed, the "
        "samplers and GCN have ten seeds; the others have not been run here, and [their "
        "results](results.md#cora-citeseer-pubmed) are of an earlier commit. Systems on parts take 40 parts, 10 a "
        "batch, where a recipe has no others. `github_social` is judged by ROC-AUC, `humloc` by micro-F1. On `arxiv` "
        "and `wordnet`, GraphSAGE, GCNII (full), SGC and our deep model are by today's rule. For the others it had a "
        "learning rate of 0.003, which is larger now, and a dropout of 0.5, which is 0.3 now for most of them; [their "
        "scores by today's rule](results.md#ten-graphs-one-rule) are up to 3.4 points higher on `wordnet`. GCN "
        "and GCNII also run with changes of the rule, as there. On `humloc`, our deep model has three seeds on a CPU "
        "here and ten seeds on an H200 there."
    ),
    time="half an hour for Cora on a laptop, about an hour of one H200 for all",
    datasets=DATASETS,
    seeds=3,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
)
