"""Uses lazy propagation in your own PyG training loop: `python examples/pyg_loop.py`."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

from lazygnn import Batch, Drift, Graph, LazyPropagation, open_history

CLASSES, SIZE, CHANNELS = 5, 400, 16


class Net(nn.Module):
    """Two linear layers and two lazy steps in place of ten exact steps."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self.first = nn.Linear(CHANNELS, 64)
        self.last = nn.Linear(64, CLASSES)
        self.propagation = LazyPropagation(alpha=0.1, features=open_history(num_nodes, CLASSES, Drift(0.1)))

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        h = F.dropout(F.relu(self.first(x)), 0.5, self.training)
        out: Tensor = self.propagation(self.last(h), batch)
        return out


def make_data() -> Data:
    """Draws five blocks of nodes with noisy features."""
    y = torch.arange(CLASSES).repeat_interleave(SIZE)
    within, between = 0.012, 0.001
    likely = torch.full((CLASSES, CLASSES), between).fill_diagonal_(within)
    edge_index = stochastic_blockmodel_graph([SIZE] * CLASSES, likely)
    x = 0.8 * F.one_hot(y, CHANNELS) + torch.randn(len(y), CHANNELS)
    order = torch.randperm(len(y))
    return Data(x=x, edge_index=edge_index, y=y, train_mask=order < 200, test_mask=order >= 1000)


torch.manual_seed(0)
data = make_data()
batch = Batch.full(Graph.from_data(data), num_layers=2)
model = Net(data.num_nodes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

for _ in range(200):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, batch)
    F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

# in evaluation mode, the same call propagates to the fixed point and does not read the history
model.eval()
with torch.no_grad():
    hits = model(data.x, batch).argmax(dim=1) == data.y
print(f"test accuracy {hits[data.test_mask].float().mean():.3f}")
