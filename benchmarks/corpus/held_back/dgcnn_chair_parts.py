"""Part segmentation of chairs by a dynamic graph network (EdgeConv). Nothing is planted."""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


@dataclass
class Args:
    num_points: int = 256
    batch_size: int = 8
    k: int = 12
    emb_dims: int = 192
    lr: float = 0.05
    momentum: float = 0.9
    chairs: int = 400


PARTS = 3  # seat, back, legs


def make_chairs(args):
    """Return clouds and the part of each point."""
    clouds, parts = [], torch.randint(PARTS, (args.chairs, args.num_points))
    spread = torch.rand(args.chairs, args.num_points, 3) * 2 - 1
    width = torch.rand(args.chairs, 1) * 0.3 + 0.4
    x, y, z = spread.unbind(-1)
    leg = torch.randint(4, parts.shape)
    seat = torch.stack([x * width, y * 0.05, z * width], -1)
    back = torch.stack([x * width, 0.5 + y * 0.45, z * 0.04 - width], -1)
    legs = torch.stack(
        [width * (leg % 2 * 2 - 1) + 0.04 * x, -0.5 + y * 0.45, width * (leg // 2 * 2 - 1) + 0.04 * z], -1
    )
    clouds = torch.stack([seat, back, legs], 2)
    chosen = parts[..., None, None].expand(-1, -1, 1, 3)
    return clouds.gather(2, chosen).squeeze(2), parts


def augment(clouds):
    """Turn about the upright axis, scale and jitter a whole batch."""
    angle = torch.rand(len(clouds)) * 6.283
    sin, cos, zero, one = angle.sin(), angle.cos(), torch.zeros_like(angle), torch.ones_like(angle)
    rotation = torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos], 1).view(-1, 3, 3)
    scale = torch.rand(len(clouds), 1, 3) * 0.5 + 0.75
    return clouds @ rotation * scale + 0.01 * torch.randn_like(clouds)


def get_graph_feature(x, k):
    """Return each point's features beside the differences to its neighbours."""
    points = x.transpose(1, 2)
    index = torch.cdist(points, points).topk(k, dim=-1, largest=False).indices
    batch, n, dims = points.shape
    flat = (index + torch.arange(batch)[:, None, None] * n).reshape(-1)
    neighbours = points.reshape(-1, dims).index_select(0, flat).view(batch, n, k, dims)
    center = points[:, :, None].expand_as(neighbours)
    return torch.cat([neighbours - center, center], 3).permute(0, 3, 1, 2)


class EdgeConv(nn.Module):
    def __init__(self, c1, c2, k):
        super().__init__()
        self.k = k
        self.conv = nn.Sequential(nn.Conv2d(2 * c1, c2, 1, bias=False), nn.BatchNorm2d(c2), nn.LeakyReLU(0.2, True))

    def forward(self, x):
        return self.conv(get_graph_feature(x, self.k)).amax(-1)


class DGCNN(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.edges = nn.ModuleList([EdgeConv(a, 48, args.k) for a in (3, 48, 48)])
        self.embed = nn.Sequential(
            nn.Conv1d(144, args.emb_dims, 1, bias=False), nn.BatchNorm1d(args.emb_dims), nn.LeakyReLU(0.2)
        )
        self.head = nn.Sequential(
            nn.Conv1d(args.emb_dims + 144, 96, 1, bias=False),
            nn.BatchNorm1d(96),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.5),
            nn.Conv1d(96, PARTS, 1),
        )

    def forward(self, clouds):
        x, levels = clouds.transpose(1, 2), []
        for edge in self.edges:
            x = edge(x)
            levels.append(x)
        local = torch.cat(levels, 1)
        whole = self.embed(local).amax(-1, keepdim=True).expand(-1, -1, local.shape[-1])
        return self.head(torch.cat([local, whole], 1))


def intersection_over_union(confusion):
    overlap = confusion.diagonal()
    return (overlap / (confusion.sum(0) + confusion.sum(1) - overlap).clamp_min(1)).mean()


def train(args, diary):
    clouds, parts = make_chairs(args)
    model = DGCNN(args)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200, eta_min=1e-3)
    for epoch in range(1_000_000):
        confusion, total = torch.zeros(PARTS * PARTS, dtype=torch.long), torch.zeros(())
        for chosen in torch.randperm(len(clouds)).split(args.batch_size):
            wanted = parts[chosen]
            logits = model(augment(clouds[chosen]))
            loss = F.cross_entropy(logits, wanted, label_smoothing=0.2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            confusion += torch.bincount((wanted * PARTS + logits.argmax(1)).flatten(), minlength=PARTS * PARTS)
            diary.stepped()
        scheduler.step()
        iou = intersection_over_union(confusion.view(PARTS, PARTS).float())
        print(f"Train {epoch}, loss: {total.item() * args.batch_size / len(clouds):.6f}, iou: {iou:.4f}", flush=True)


def main():
    diary, _ = begin()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train(Args(), diary)


if __name__ == "__main__":
    main()
