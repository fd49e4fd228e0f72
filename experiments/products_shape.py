"""A graph of the shape of ogbn-products, written as a folder that is mapped into memory."""

from pathlib import Path

from lazygnn.data.synthetic import write_block_folder


def main(folder: Path) -> None:
    """Writes the graph, 2.0 GB, block by block."""
    write_block_folder(folder, name=folder.name)
    print(
        f"wrote {folder}; train with `lazygnn train lazygnn {folder} --set partition=contiguous --set num_parts=50 ...`"
    )
