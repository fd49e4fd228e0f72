"""A graph of the shape of ogbn-products, written as a folder that is mapped into memory."""

from pathlib import Path

from lazygnn.data.synthetic import write_block_folder

NODES = 2_449_029


def main(folder: Path, num_nodes: int = NODES) -> None:
    """Writes the graph, 2.0 GB at its full size, block by block."""
    write_block_folder(folder, num_nodes, name=folder.name)
    print(
        f"wrote {folder}; train with `lazygnn train lazygnn {folder} --set partition=contiguous --set num_parts=50 ...`"
    )
