"""The probability from which a label is predicted, where a node has several; chosen on validation. Not in the paper.

One half is right for the share of correct decisions. The F1 score is best at a lower threshold: at half of the score
itself, if probabilities are calibrated (Lipton et al., Optimal Thresholding of Classifiers to Maximize F1 Measure, ECML
2014; https://arxiv.org/abs/1402.1892). So with rare labels one half predicts too few of them.

`T` nodes of a split, `C` labels, `K` thresholds.
"""

import torch
from torch import Tensor

from lazygnn.task import log_odds_of
from lazygnn.training.metrics import THRESHOLDED, f1_of_counts

# nearest to one half first, so that of equally good ones it is taken
THRESHOLDS = tuple(sorted((step / 20 for step in range(1, 20)), key=lambda threshold: abs(threshold - 0.5)))


def choose_threshold(metric: str, logits: Tensor, y: Tensor) -> float:
    """Returns the threshold of `THRESHOLDS` with the best F1 score; a metric that depends on none counts as micro-F1.

    Args:
        metric: The metric that the run is judged by.
        logits: Of the validation nodes, [T, C].
        y: Their labels, [T, C].
    """
    name = metric if metric in THRESHOLDED else THRESHOLDED[0]
    ascending = sorted(THRESHOLDS)
    right, found, wanted = _counts(ascending, logits, y)
    scores = dict(zip(ascending, f1_of_counts(name, right, found, wanted).tolist(), strict=True))
    return max(THRESHOLDS, key=lambda threshold: scores[threshold])


def _counts(ascending: list[float], logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns how many nodes have each label predicted correctly, predicted, and in the targets, [K, C]."""
    cuts = torch.tensor([log_odds_of(threshold) for threshold in ascending], dtype=logits.dtype, device=logits.device)
    # the number of thresholds that a label exceeds
    exceeded, positive = torch.bucketize(logits, cuts), y > 0
    num_labels, size = logits.shape[1], len(cuts) + 1
    at = exceeded.add_(size * torch.arange(num_labels, device=logits.device))
    right, found = (
        torch.bincount(entries, minlength=num_labels * size).view(num_labels, size)
        for entries in (at[positive], at.view(-1))
    )
    wanted = positive.sum(dim=0).expand(len(cuts), num_labels)
    return _at_least(right), _at_least(found), wanted


def _at_least(counts: Tensor) -> Tensor:
    """Returns how many entries exceed the first threshold, the second and so on, [K, C], from those of each bin."""
    return counts.flip(1).cumsum(1).flip(1)[:, 1:].T
