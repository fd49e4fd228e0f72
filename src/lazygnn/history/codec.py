"""How a row is stored: unchanged, in fewer bits, or as int8 with a scale for each row."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

# rows are stored in one tensor or in two, by name
Parts = dict[str, Tensor]
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.float64)
_LARGEST = 127


@dataclass(frozen=True)
class Codec:
    """Encodes rows for a store and decodes them.

    With `torch.int8` a row is rounded to the nearest of 255 levels between plus and minus its largest entry, so no
    entry is off by more than 1/254 of that. The float32 width of a level is stored for each row.

    Args:
        dtype: Type of the stored rows.
        compute_dtype: Type of the rows that are read.
    """

    dtype: torch.dtype
    compute_dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            names = ", ".join(str(dtype) for dtype in DTYPES)
            raise ValueError(f"`dtype` of a history must be one of {names}, got {self.dtype}")
        if not self.compute_dtype.is_floating_point:
            raise ValueError(f"`compute_dtype` must be a floating-point type, got {self.compute_dtype}")

    def layout(self, num_rows: int, channels: int) -> Layout:
        """Returns name, shape and type of the tensors that store `num_rows` rows."""
        rows: Layout = {"rows": ((num_rows, channels), self.dtype)}
        return rows | {"scale": ((num_rows,), torch.float32)} if self.dtype == torch.int8 else rows

    def encode(self, values: Tensor) -> Parts:
        """Returns the tensors to store; shares the memory of `values` where nothing has to change."""
        values = values.detach()
        return _quantize(values) if self.dtype == torch.int8 else {"rows": values.to(self.dtype)}

    def decode(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Returns the rows in the compute dtype."""
        rows = parts["rows"]
        if self.dtype == torch.int8:
            rows = rows * parts["scale"].unsqueeze(1)
        return rows.to(self.compute_dtype)


def _quantize(values: Tensor) -> Parts:
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    scale = (values.abs().amax(dim=1) / _LARGEST).to(torch.float32)
    # a row of zeros has scale zero; dividing it by one keeps it zero
    levels = (values / scale.where(scale > 0, 1.0).unsqueeze(1)).round_()
    # the scale of a row of denormal numbers is itself rounded and may be too small for the row
    return {"rows": levels.clamp_(-_LARGEST, _LARGEST).to(torch.int8), "scale": scale}
