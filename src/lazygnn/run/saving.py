"""When checkpoints are written: every few batches or minutes, and when a signal stops the process."""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

from lazygnn.config import TrainerOptions
from lazygnn.errors import CheckpointError
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.log import RunLog
from lazygnn.training.trainer import Trainer

logger = logging.getLogger(__name__)


class Interrupted(Exception):
    """A signal has stopped the training, or a search; the run is saved.

    Args:
        signum: The signal.
        run: The run folder.
        command: The command that resumes the run.
        ended: Whether the run had ended by then, and its result is written.
    """

    def __init__(self, signum: int, run: Path, command: str = "train", *, ended: bool = False) -> None:
        name = signal.Signals(signum).name
        resume = f"the run is saved, resume it with `lazygnn {command} --resume {run}`"
        super().__init__(f"stopped by {name}; {f'the run has ended, see `lazygnn show {run}`' if ended else resume}")
        self.signum = signum


class Saver:
    """A callback for every batch: writes a checkpoint if one is due and stops the training after a signal.

    Args:
        folder: Where checkpoints are saved.
        options: When they are saved.
        log: Flushed to the disk before every checkpoint.
    """

    def __init__(self, folder: CheckpointFolder, options: TrainerOptions, log: RunLog | None = None) -> None:
        self.folder, self.options, self.log = folder, options, log
        self.signum: int | None = None
        self._saved_at = time.monotonic()

    def __call__(self, trainer: Trainer) -> None:
        """Writes a checkpoint if one is due."""
        every = self.options.checkpoint_every
        due = every is not None and trainer.num_batches % every == 0
        late = time.monotonic() - self._saved_at > 60 * self.options.checkpoint_minutes
        if due or late or self.signum is not None:
            self.save(trainer)
        if self.signum is not None:
            raise Interrupted(self.signum, self.folder.path.parent)

    def save(self, trainer: Trainer) -> None:
        """Writes a checkpoint; a failure such as a full disk is a warning, since training itself can continue.

        After a signal it is an error: the run ends, and what was trained since the last checkpoint is lost.

        Weights that are not finite are not written: the checkpoint before them can be resumed with other options.
        """
        if not trainer.has_finite_weights():
            logger.warning("no checkpoint was written: a weight is not finite")
            return
        tensors, state = trainer.checkpoint()
        try:
            if self.log is not None:
                self.log.sync()
            self.folder.save(trainer.num_batches, tensors, state)
        except (CheckpointError, OSError) as error:
            if self.signum is not None:
                raise
            logger.warning("no checkpoint was written: %s", error)
        self._saved_at = time.monotonic()

    def handling_signals(self) -> AbstractContextManager[None]:
        """Lets SIGTERM and SIGINT stop the training after the current batch; a second one stops it at once."""
        return stopping(self._stop)

    def _stop(self, signum: int) -> None:
        self.signum = signum


@contextmanager
def stopping(request: Callable[[int], None], *, twice: bool = False) -> Iterator[None]:
    """Calls a function at the first SIGTERM or SIGINT; a second one has its usual effect.

    Args:
        request: Receives the signal.
        twice: Whether a second one has no effect, since a launcher sends what the terminal has sent already.
    """

    def request_stop(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        request(signum)
        if not twice:
            signal.signal(signum, previous[signal.Signals(signum)])

    previous = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        for signum in previous:
            signal.signal(signum, request_stop)
    except ValueError:
        # only the main thread may handle signals; in another one, they are left to the caller
        previous = {}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
