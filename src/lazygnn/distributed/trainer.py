"""`RankTrainer`: the training loop of one rank, in lock step with the others."""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lazygnn.config import TrainerOptions
from lazygnn.distributed.exchange import Exchange
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.loader import PartLoader, Step
from lazygnn.distributed.matrix import ShardedMatrix
from lazygnn.distributed.scores import assess_ranks
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.model import THRESHOLD
from lazygnn.training.evaluation import Assessment
from lazygnn.training.precision import forward_precision, product_precision
from lazygnn.training.replay import Replay
from lazygnn.training.trainer import Trainer


class RankTrainer(Trainer):
    """Trains the parts of this rank; weights, scores and decisions are the same on all ranks.

    The random numbers of a part follow from seed, epoch and part. Gradients are summed over parts and ranks before a
    step, so the weights do not depend on the number of ranks.

    Args:
        model: Built from the graph of this rank; its weights are replaced by those of the first rank.
        loader: The parts of this rank.
        graph: The nodes of this rank.
        options: Epochs, optimizer and the like.
        ranks: All ranks.
        exchange: Has made the stores of the model's histories.
        seed: Seed of everything random.

    Attributes:
        requests: Returns what this rank asks of all after a step, as numbers; the sums over ranks are in `requested`.
        requested: The sums of `requests` over all ranks in the last step.
    """

    def __init__(
        self,
        model: nn.Module,
        loader: PartLoader,
        graph: Graph,
        options: TrainerOptions,
        ranks: Ranks,
        exchange: Exchange,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(model, loader, graph, options, seed=seed)
        if options.diagnose_every > 0:
            raise ConfigError(
                f"`diagnose_every` is {options.diagnose_every}, but histories of several parts a step are not "
                "diagnosed; set `diagnose_every=0`"
            )
        self.ranks, self.parts, self.exchange = ranks, loader, exchange
        self.num_parts = loader.num_parts
        self.requests: Callable[[], list[float]] = list
        self.requested: list[float] = []
        # copies of other rows are empty at the start and after a resume
        self._visited: set[int] = set()
        self._share_weights()

    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the state of training; rows of histories are those of this rank."""
        self._average_buffers()
        return super().checkpoint()

    def _check_metric(self, graph: Graph) -> None:
        """Does nothing: a split has nodes on all ranks."""

    def _make_replay(self) -> Replay | None:
        return None

    def _steps(self) -> Iterator[Tensor]:
        for step in self.parts.steps():
            yield self._take(step)
        self.exchange.traffic.epochs += 1

    def _take(self, step: Step) -> Tensor:
        every = self.options.exchange_every
        if self.epoch % every == 0 or id(step) not in self._visited:
            self._visited.add(id(step))
            self.exchange.launch(step.plan)
        self._begin_pushes()
        with product_precision(self.options.precision):
            self.optimizer.zero_grad()
            loss = torch.zeros((), device=self._device)
            for part in step.parts:
                batch = self.parts.batch(part).to(self._device)
                torch.manual_seed(part_seed(self.seed, self.epoch, part.number))
                with forward_precision(self.options.precision, self._device):
                    of_part = self.model.loss(batch, self.task)
                of_part.backward()
                loss = loss + of_part.detach()
            # a rank without a part, and a model that reads no rows, have not waited for them
            self.exchange.finish()
            loss = self._sum_gradients(loss)
            self._update()
        return loss

    def _begin_pushes(self) -> None:
        # all pushes of a step count as one, on however many ranks they are
        for history in self.histories.values():
            history.num_pushes.fill_(self.num_batches + 1)

    def _sum_gradients(self, loss: Tensor) -> Tensor:
        """Sums gradients, losses and requests over all ranks in one collective; returns the sum of the losses."""
        weights = [p for p in self.model.parameters() if p.requires_grad]
        asked = self.requests()
        dtype = weights[0].dtype
        extra = torch.tensor([0.0, *asked], dtype=dtype, device=self._device)
        extra[0] = loss
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in weights]
        flat = torch.cat([extra, *[grad.flatten() for grad in grads]])
        started = time.perf_counter()
        self.ranks.sum(flat)
        self.exchange.traffic.exposed += time.perf_counter() - started
        self.exchange.traffic.add_sum(flat.nbytes, self.ranks.size)
        extra, *summed = flat.split([len(extra), *[p.numel() for p in weights]])
        for weight, grad in zip(weights, summed, strict=True):
            weight.grad = grad.view_as(weight)
        total: Tensor = extra[0]
        self.requested = extra[1:].tolist()
        return total

    def _fill_histories(self) -> None:
        """Runs forward-only passes, after which no stored row has seen an empty row around its part."""
        self.model.train(True)
        assert isinstance(self.graph.adj, ShardedMatrix)
        with self._keeping_buffers():
            for sweep in range(len(self.histories)):
                if sweep > 0:
                    self.exchange.launch(self.graph.adj.plan)
                for part in self.parts.parts:
                    torch.manual_seed(part_seed(self.seed, -1, part.number))
                    self._fill(self.parts.batch(part))
        # these are not rows of an epoch
        self.exchange.traffic.halo = 0

    def _assess(self, *, select: bool) -> Assessment:
        self._average_buffers()
        if self.options.exchange_every == 1:
            # every step brings its rows anew
            self.exchange.drop_copies()
        return assess_ranks(
            self.model,
            self.graph,
            self.ranks,
            self.options.metric,
            loss=self._criterion_loss,
            select=select,
            learn_threshold=self._learns_threshold,
        )

    def _share_weights(self) -> None:
        with torch.no_grad():
            for value in self.model.state_dict().values():
                value.copy_(self.ranks.sum(value if self.ranks.is_first else torch.zeros_like(value)))

    def _average_buffers(self) -> None:
        """Averages what batch normalization has measured on every rank."""
        if self.ranks.size == 1:
            return
        for name, buffer in self.model.named_buffers():
            # the threshold is the same on all ranks, and a sum may round it
            if buffer.is_floating_point() and name != THRESHOLD:
                self.ranks.sum(buffer).div_(self.ranks.size)


def part_seed(seed: int, epoch: int, part: int) -> int:
    """Returns the seed of the random numbers of a part in an epoch."""
    digest = hashlib.blake2b(f"{seed} {epoch} {part}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
