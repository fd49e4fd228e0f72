"""When ranks write checkpoints: after the same step on all of them."""

import logging
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path

from lazygnn.config import TrainerOptions
from lazygnn.distributed.checkpoint import RankCheckpoints
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import CheckpointError
from lazygnn.run.log import RunLog
from lazygnn.run.saving import Interrupted, stopping
from lazygnn.training.trainer import Trainer

logger = logging.getLogger(__name__)


class RankSaver:
    """A callback for every step: writes a checkpoint if one is due, and stops all ranks after a signal to one.

    Ranks ask for both within the sum of gradients, so that all of them know before the step ends.

    Args:
        checkpoints: Where checkpoints are saved.
        options: When they are saved.
        run: The run folder.
        log: Flushed to the disk before every checkpoint.
    """

    def __init__(self, checkpoints: RankCheckpoints, options: TrainerOptions, run: Path, log: RunLog) -> None:
        self.checkpoints, self.options, self.run, self.log = checkpoints, options, run, log
        self.signum: int | None = None
        self._saved_at = time.monotonic()

    def requests(self) -> list[float]:
        """Returns whether this rank asks to stop, and for a checkpoint, which the first rank does by its clock."""
        late = time.monotonic() - self._saved_at > 60 * self.options.checkpoint_minutes
        return [float(self.signum is not None), float(late and self.checkpoints.ranks.is_first)]

    def __call__(self, trainer: Trainer) -> None:
        """Writes a checkpoint if one is due."""
        assert isinstance(trainer, RankTrainer)
        stop, late = trainer.requested
        every = self.options.checkpoint_every
        if stop or late or (every is not None and trainer.num_batches % every == 0):
            self.save(trainer, must=bool(stop))
        if stop:
            raise Interrupted(self.signum or signal.SIGTERM, self.run)

    def save(self, trainer: RankTrainer, *, must: bool = False) -> None:
        """Writes a checkpoint; a failure is a warning, since training itself can continue, unless it must be written.

        Weights that are not finite are not written.
        """
        first = self.checkpoints.ranks.is_first
        if not trainer.has_finite_weights():
            if first:
                logger.warning("no checkpoint was written: a weight is not finite")
            return
        try:
            if first:
                self.log.sync()
            self.checkpoints.save(trainer)
        except (CheckpointError, OSError) as error:
            if must:
                raise
            if first:
                logger.warning("no checkpoint was written: %s", error)
        self._saved_at = time.monotonic()

    def check(self) -> None:
        """Raises `Interrupted` on all ranks if a signal has come to one of them since the last step."""
        found = [signum for signum in self.checkpoints.ranks.gather(self.signum) if signum is not None]
        if found:
            raise Interrupted(found[0], self.run)

    def handling_signals(self) -> AbstractContextManager[None]:
        """Lets SIGTERM and SIGINT stop all ranks after the current step; `torchrun` kills a rank that does not end."""
        return stopping(self._stop, twice=self.checkpoints.ranks.size > 1)

    def _stop(self, signum: int) -> None:
        self.signum = signum
