"""A codebook of values and gradients: many rows share few words (VQ-GNN).

`R` rows, `C` channels, `B` branches of `W` channels, `M` words in each branch.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# weight of a batch in the running mean and variance
_MOMENTUM = 0.1
# added to the variance of values and of gradients, which are far smaller
_EPSILON = (1e-5, 1e-24)
# a word that so few rows chose lately keeps its value
_RARE = 1e-6
# entries of a table of distances that is held at a time
_ENTRIES_AT_ONCE = 1 << 24


class Codebook(nn.Module):
    """Words for rows of values beside rows of gradients, learned by moving means (product quantization).

    The channels are divided into branches. In each branch, a row is replaced by the nearest of `M` words. A word has
    the values and the gradients of its branch, which are compared in units of their standard deviation. A word is the
    mean of the rows that chose it, where older rows count less. Words start as rows of the first batch.

    Codes count from 1. Code 0 belongs to rows that were never encoded, and means the mean of all rows.

    Args:
        channels: Width of values and gradients.
        num_words: Number of words in each branch.
        word_channels: Largest number of channels in a branch.
        decay: Weight of older rows in a word, in [0, 1); 0 makes every update a step of k-means.

    Attributes:
        num_branches: Number of branches, and of codes for a row.
    """

    words: Tensor
    counts: Tensor
    sums: Tensor
    mean: Tensor
    variance: Tensor
    num_updates: Tensor
    epsilon: Tensor

    def __init__(self, channels: int, num_words: int, *, word_channels: int = 4, decay: float = 0.99) -> None:
        super().__init__()
        for name, size in {"channels": channels, "num_words": num_words, "word_channels": word_channels}.items():
            if size < 1:
                raise ValueError(f"`{name}` must be at least 1, got {size}")
        if not 0 <= decay < 1:
            raise ValueError(f"`decay` must be in [0, 1), got {decay}")
        self.channels, self.num_words, self.decay = channels, num_words, decay
        self.num_branches = math.ceil(channels / word_channels)
        # branches of equal width, the last one padded with zeros
        self._width = math.ceil(channels / self.num_branches)
        shape = (self.num_branches, num_words, 2 * self._width)
        self.register_buffer("words", torch.zeros(shape))
        self.register_buffer("counts", torch.zeros(shape[:2]))
        self.register_buffer("sums", torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(2, channels))
        self.register_buffer("variance", torch.ones(2, channels))
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("epsilon", torch.tensor(_EPSILON).unsqueeze(1), persistent=False)

    def decode(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Returns values and gradients of the words, [R, B] -> twice [R, C]."""
        known = F.pad(self.words, (0, 0, 1, 0))
        branch = torch.arange(self.num_branches, device=codes.device)
        values, gradients = (self._join(part) for part in known[branch, codes].split(self._width, dim=2))
        mean, deviation = self.mean, self._deviation()
        return values * deviation[0] + mean[0], gradients * deviation[1] + mean[1]

    @torch.no_grad()
    def update(self, values: Tensor, gradients: Tensor) -> Tensor:
        """Returns the codes of the nearest words, and moves the words towards these rows, twice [R, C] -> [R, B]."""
        first = self.num_updates == 0
        self._observe(values, gradients)
        rows = self.standardize(values, gradients)
        # rows spread over the batch; a batch with fewer rows than words repeats some
        start = rows[:, torch.arange(self.num_words, device=rows.device) * rows.shape[1] // self.num_words]
        self.words.copy_(torch.where(first, start, self.words))
        codes, counts, sums = self._assign(rows)
        share = torch.where(first, rows.new_ones(()), 1 - self.decay)
        self.counts.lerp_(counts, share)
        self.sums.lerp_(sums, share)
        moved = self.sums / self.counts.clamp(min=_RARE).unsqueeze(2)
        self.words.copy_(torch.where((self.counts > _RARE).unsqueeze(2), moved, self.words))
        self.num_updates += 1
        return codes + 1

    def standardize(self, values: Tensor, gradients: Tensor) -> Tensor:
        """Returns rows in the units of the words, twice [R, C] -> [B, R, 2 W]."""
        deviation, rows = self._deviation(), torch.stack((values, gradients)).to(self.words.dtype)
        scaled = (rows - self.mean.unsqueeze(1)) / deviation.unsqueeze(1)
        return torch.cat([self._split(part) for part in scaled], dim=2)

    def _observe(self, values: Tensor, gradients: Tensor) -> None:
        """Moves mean and variance towards those of these rows; the first ones count as a whole."""
        rows = torch.stack((values, gradients)).to(self.mean.dtype)
        variance, mean = torch.var_mean(rows, dim=1, correction=0)
        share = (1 / (self.num_updates.to(rows.dtype) + 1)).clamp(min=_MOMENTUM)
        self.mean.lerp_(mean, share)
        self.variance.lerp_(variance, share)

    def _assign(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the nearest word of each row, and the number and the sum of the rows of each word."""
        # the square of the row itself is the same for every word
        squares = self.words.square().sum(dim=2).unsqueeze(1)
        numbers = torch.arange(self.num_words, device=rows.device)
        counts, sums, codes = torch.zeros_like(self.counts), torch.zeros_like(self.sums), []
        for part in rows.split(max(_ENTRIES_AT_ONCE // self.counts.numel(), 1), dim=1):
            codes.append(torch.baddbmm(squares, part, self.words.mT, alpha=-2).argmin(dim=2))
            # a product instead of a scatter, whose order of additions is not the same every time on a GPU
            chosen = (codes[-1].unsqueeze(2) == numbers).to(rows.dtype)
            counts += chosen.sum(dim=1)
            sums += chosen.mT @ part
        return torch.cat(codes, dim=1).T, counts, sums

    def _deviation(self) -> Tensor:
        return (self.variance + self.epsilon).sqrt()

    def _split(self, x: Tensor) -> Tensor:
        """Divides the channels into branches, [R, C] -> [B, R, W]."""
        padded = F.pad(x, (0, self.num_branches * self._width - self.channels))
        return padded.view(len(x), self.num_branches, self._width).transpose(0, 1)

    def _join(self, x: Tensor) -> Tensor:
        """Puts the branches together again, [R, B, W] -> [R, C]."""
        return x.flatten(start_dim=1)[:, : self.channels]
