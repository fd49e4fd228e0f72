"""The `lazygnn` command line. Results go to stdout, logs and progress to stderr."""

from lazygnn.cli import data, installation, results, studies, training
from lazygnn.cli.app import Commands, app, main
from lazygnn.cli.arguments import TrainCommand

# in the order of the help
app.command("list")(data.list_command)
app.command()(data.prepare)
app.command("import")(data.import_command)
app.command(cls=TrainCommand)(training.train)
app.command()(results.evaluate)
app.command()(results.predict)
app.command()(results.embed)
app.command()(results.export)
app.command()(results.show)
app.command(cls=TrainCommand)(studies.tune)
app.command()(studies.compare)
app.command()(studies.report)
app.command()(installation.doctor)

__all__ = ["Commands", "app", "main"]
