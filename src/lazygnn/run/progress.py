"""The progress of a training: a bar on a terminal or in a notebook, about ten lines elsewhere."""

from importlib.util import find_spec
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lazygnn.training.trainer import EpochReport


class EpochProgress:
    """A context manager that shows every epoch when it ends; `show` is a hook for `Trainer(on_epoch=...)`.

    Args:
        title: Begins every line.
        epochs: The number of epochs of the training.
        metric: The name of the scores.
        quiet: Shows nothing.
    """

    def __init__(self, title: str, epochs: int, *, metric: str, quiet: bool = False) -> None:
        self.title, self.epochs, self.metric, self.quiet = title, epochs, metric, quiet
        self.console = Console(stderr=True)
        self.draws = not quiet and _can_draw(self.console)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}"),
            console=self.console,
            disable=not self.draws,
        )
        self.bar_task = self.bar.add_task(title, total=epochs, text="")
        self.scores, self.scored_epoch = "", 0

    def __enter__(self) -> "EpochProgress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def note(self, text: str) -> None:
        """Shows a sentence."""
        if not self.quiet:
            self.console.print(f"{self.title}  {text}", soft_wrap=True, highlight=False, markup=False)

    def show(self, report: EpochReport) -> None:
        """Shows one more epoch."""
        if report.scores is not None:
            scores = "  ".join(f"{split} {score:.4f}" for split, score in report.scores.items())
            self.scores = f"{self.metric}: {scores}"
            self.scored_epoch = report.epoch
        # scores of an earlier epoch are marked with it
        of = f" (epoch {self.scored_epoch})" if self.scores and self.scored_epoch < report.epoch else ""
        text = f"loss {report.loss:.4f}  {self.scores}{of}"
        self.bar.update(self.bar_task, completed=report.epoch, text=text)
        line_due = report.epoch == self.epochs or report.epoch % max(self.epochs // 10, 1) == 0
        if line_due and not self.quiet and not self.draws:
            self.console.print(
                f"{self.title}  epoch {report.epoch}/{self.epochs}  {text}", soft_wrap=True, highlight=False
            )


def _can_draw(console: Console) -> bool:
    # in a notebook, rich draws over what it has drawn with the help of this package
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
