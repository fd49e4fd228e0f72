"""Rows read and written where they lie, at once: the fastest way while they fit on the compute device.

On a CPU this serves the rows in host memory and on disk as well, since there is nothing to copy them to.
"""

from torch import Tensor

from lazygnn.history.base import Located, Store


class DeviceStore(Store):
    """Gathers and scatters in place."""

    copies_at_once = True

    def read(self, rows: Tensor) -> Tensor:
        """Gathers."""
        here = rows.to(self.parts["rows"].device)
        gathered = {name: part.index_select(0, here) for name, part in self.parts.items()}
        return self.codec.decode(gathered).to(self.device)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters."""
        here = self.parts["rows"].device
        self._scatter(rows.to(here), self.codec.encode(values.to(here)))

    def locate(self, rows: Tensor) -> Located:
        """Where they lie, unless they have to be decoded."""
        table = self.parts["rows"]
        return Located(table, rows.to(table.device)) if table.is_floating_point() else super().locate(rows)

    def writable(self) -> Tensor | None:
        """The tensor of rows, unless there is another beside it."""
        table = self.parts["rows"]
        return table if table.is_floating_point() else None
