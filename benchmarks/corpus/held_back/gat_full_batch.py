"""Graph attention over one whole graph, message passing by index_add, early stopping that keeps the best weights.

Nothing is planted.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class GATConv(nn.Module):
    def __init__(self, n_in, n_out, heads):
        super().__init__()
        self.lin = nn.Linear(n_in, heads * n_out, bias=False)
        self.att_src, self.att_dst = (
            nn.Parameter(torch.randn(heads, n_out) * 0.1),
            nn.Parameter(torch.randn(heads, n_out) * 0.1),
        )
        self.heads, self.n_out = heads, n_out

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x).view(-1, self.heads, self.n_out)
        alpha = F.leaky_relu((h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst], 0.2)
        alpha = (alpha - alpha.max()).exp()
        total = torch.zeros(len(x), self.heads).index_add(0, dst, alpha)
        alpha = alpha / (total[dst] + 1e-16)
        return torch.zeros_like(h).index_add(0, dst, h[src] * alpha[..., None]).flatten(1)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GATConv(300, 8, 8), GATConv(64, 7, 1)

    def forward(self, x, edge_index):
        x = F.dropout(x, 0.6, self.training)
        x = F.elu(self.conv1(x, edge_index))
        return self.conv2(F.dropout(x, 0.6, self.training), edge_index)


def train(model, data, optimizer):
    model.train()
    optimizer.zero_grad()
    out = model(data["x"], data["edges"])
    loss = F.cross_entropy(out[data["train"]], data["y"][data["train"]])
    loss.backward()
    optimizer.step()
    return float(loss)


@torch.no_grad()
def test(model, data):
    model.eval()
    pred = model(data["x"], data["edges"]).argmax(-1)
    return [float((pred[data[name]] == data["y"][data[name]]).float().mean()) for name in ("train", "test")]


def main(diary):
    torch.manual_seed(12)
    torch.set_num_threads(1)
    nodes = 2000
    data = {"x": torch.rand(nodes, 300), "y": torch.randint(7, (nodes,)), "edges": torch.randint(nodes, (2, 8000))}
    data["train"] = torch.arange(nodes) < 1000
    data["test"] = ~data["train"]
    model = GAT()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best, epoch = 0.0, 0
    while True:
        epoch += 1
        loss = train(model, data, optimizer)
        diary.stepped()
        if epoch % 20 == 0:
            _, accuracy = test(model, data)
            best = max(best, accuracy)
            print(f"Epoch: {epoch:04d}, Loss: {loss:.4f}, Test: {accuracy:.4f}, Best: {best:.4f}", flush=True)


if __name__ == "__main__":
    main(begin()[0])
