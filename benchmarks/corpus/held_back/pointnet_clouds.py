"""Classification of clouds of points with PointNet, turned and shaken at random, all clouds of a batch at once.

Nothing is planted: the changes of the points are tensor operations, and the classes are counted without a loop.
"""

import argparse
import sys
from collections import namedtuple
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

Result = namedtuple("Result", "instance_accuracy class_accuracy")


def parse_args():
    parser = argparse.ArgumentParser("training", add_help=False)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--num_point", type=int, default=256)
    parser.add_argument("--num_category", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--decay_rate", type=float, default=1e-4)
    parser.add_argument("--mat_diff_loss_scale", type=float, default=1e-3)
    return parser.parse_args([])


def make_clouds(args, count):
    """Shells of ellipsoids: the class is the form."""
    labels = torch.randint(args.num_category, (count,))
    forms = torch.rand(args.num_category, 1, 3) * 0.8 + 0.2
    points = F.normalize(torch.randn(count, args.num_point, 3), dim=-1) * forms[labels]
    return TensorDataset(points, labels)


class provider:
    """What changes the points, under the name that the ports give it."""

    @staticmethod
    def rotate(points):
        angle = 2 * torch.pi * torch.rand(len(points))
        cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
        matrix = torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos], 1).view(-1, 3, 3)
        return points @ matrix

    @staticmethod
    def drop(points, most=0.5):
        ratio = most * torch.rand(len(points), 1)
        dropped = torch.rand(points.shape[:2]) < ratio
        return torch.where(dropped[..., None], points[:, :1], points)

    @staticmethod
    def scale_and_shift(points):
        return points * torch.empty(len(points), 1, 1).uniform_(0.8, 1.25) + 0.1 * (torch.rand(len(points), 1, 3) - 0.5)


class STN(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.convs = nn.Sequential(nn.Conv1d(k, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 128, 1), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, k * k))

    def forward(self, x):
        out = self.fc(self.convs(x).max(2).values)
        return out.view(-1, self.k, self.k) + torch.eye(self.k)


class PointNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stn, self.fstn = STN(3), STN(48)
        self.conv1 = nn.Sequential(nn.Conv1d(3, 48, 1), nn.BatchNorm1d(48), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv1d(48, 96, 1), nn.BatchNorm1d(96), nn.ReLU(), nn.Conv1d(96, 384, 1))
        self.norm = nn.BatchNorm1d(384)
        self.head = nn.Sequential(
            nn.Linear(384, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, classes)
        )

    def forward(self, x):
        x = torch.bmm(x.transpose(2, 1), self.stn(x)).transpose(2, 1)
        x = self.conv1(x)
        trans_feat = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), trans_feat).transpose(2, 1)
        return self.head(self.norm(self.conv2(x)).max(2).values), trans_feat


def feature_transform_regularizer(trans):
    difference = trans @ trans.transpose(2, 1) - torch.eye(trans.shape[1])
    return difference.flatten(1).norm(dim=1).mean()


@torch.no_grad()
def test(model, loader, num_class):
    model.eval()
    right, seen = torch.zeros(num_class), torch.zeros(num_class)
    for points, target in loader:
        hit = (model(points.transpose(2, 1))[0].argmax(1) == target).float()
        right += torch.bincount(target, hit, num_class)
        seen += torch.bincount(target, minlength=num_class)
    model.train()
    return Result((right.sum() / seen.sum()).item(), (right / seen.clamp(min=1)).mean().item())


def main(diary, _):
    args = parse_args()
    everything = make_clouds(args, 1064)
    train_set, test_set = torch.utils.data.random_split(everything, [1000, 64])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, args.batch_size)
    classifier = PointNet(args.num_category)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=args.learning_rate, weight_decay=args.decay_rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.7)
    for epoch in range(10**6):
        correct = torch.zeros(())
        for points, target in train_loader:
            points = provider.scale_and_shift(provider.drop(provider.rotate(points)))
            optimizer.zero_grad()
            pred, trans_feat = classifier(points.transpose(2, 1))
            loss = F.cross_entropy(pred, target) + args.mat_diff_loss_scale * feature_transform_regularizer(trans_feat)
            loss.backward()
            optimizer.step()
            correct += (pred.argmax(1) == target).float().mean()
            diary.stepped()
        scheduler.step()
        if epoch % 5 == 0:
            result = test(classifier, test_loader, args.num_category)
            print(f"Epoch {epoch} Train {correct.item() / len(train_loader):.3f} Test {result}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(4)
    torch.set_num_threads(1)
    main(*begin())
