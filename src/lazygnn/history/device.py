"""Rows read and written in place: the fastest tier, for rows that fit on the compute device.

On a CPU it also serves rows in host memory and on disk, which need no copy.
"""

from torch import Tensor

from lazygnn.history.base import Located, Store


class DeviceStore(Store):
    """Gathers and scatters in place."""

    copies_at_once = True

    def read(self, rows: Tensor) -> Tensor:
        """Gathers the rows in place."""
        here = rows.to(self.parts["rows"].device)
        gathered = {name: part.index_select(0, here) for name, part in self.parts.items()}
        return self.codec.decode(gathered).to(self.device)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters the values in place."""
        here = self.parts["rows"].device
        self._scatter(rows.to(here), self.codec.encode(values.to(here)))

    def locate(self, rows: Tensor) -> Located:
        """Returns the whole table and the rows in it, unless rows have to be decoded."""
        table = self.parts["rows"]
        return Located(table, rows.to(table.device)) if table.is_floating_point() else super().locate(rows)

    def writable(self) -> Tensor | None:
        """Returns the tensor of rows, unless rows are stored in more than one tensor."""
        table = self.parts["rows"]
        return table if table.is_floating_point() else None
