"""Puts a lazy block behind a PyG convolution: `python examples/lazy_block.py`."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import stochastic_blockmodel_graph

from lazygnn import Batch, Graph
from lazygnn.models import LazyBlock

CLASSES, SIZE, CHANNELS, WIDTH = 5, 400, 16, 32


class Net(nn.Module):
    """A convolution of PyG, a lazy block that sees the whole graph, and a linear layer."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first = SAGEConv(CHANNELS, WIDTH)
        self.block = LazyBlock.for_graph(graph, WIDTH, num_layers=2)
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, data: Data, batch: Batch) -> Tensor:
        h = F.dropout(F.relu(self.first(data.x, data.edge_index)), 0.5, self.training)
        out: Tensor = self.last(self.block(h, batch))
        return out


def make_data() -> Data:
    """Draws five blocks of nodes with noisy features."""
    y = torch.arange(CLASSES).repeat_interleave(SIZE)
    likely = torch.full((CLASSES, CLASSES), 0.001).fill_diagonal_(0.012)
    edge_index = stochastic_blockmodel_graph([SIZE] * CLASSES, likely)
    x = 0.8 * F.one_hot(y, CHANNELS) + torch.randn(len(y), CHANNELS)
    order = torch.randperm(len(y))
    return Data(x=x, edge_index=edge_index, y=y, train_mask=order < 200, test_mask=order >= 1000)


torch.manual_seed(0)
data = make_data()
graph = Graph.from_data(data)
# every batch of the whole graph takes two steps in each block
batch = Batch.full(graph, num_layers=2)
model = Net(graph)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.01)

for _ in range(100):
    model.train()
    optimizer.zero_grad()
    out = model(data, batch)
    F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

# in evaluation mode the block propagates to the fixed point and does not read its history
model.eval()
with torch.no_grad():
    hits = model(data, batch).argmax(dim=1) == data.y
print(f"test accuracy {hits[data.test_mask].float().mean():.3f}")
