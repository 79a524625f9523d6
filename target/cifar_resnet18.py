"""Train ResNet-18 on CIFAR-10, or on random images of the same shape where there is no CIFAR-10."""

import argparse
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms
from tqdm import tqdm

CLASSES = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)

    train_set, test_set = load_datasets(args.data)
    options = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": args.device != "cpu"}
    train_loader = DataLoader(train_set, shuffle=True, **options)
    test_loader = DataLoader(test_set, **options)

    model = models.resnet18(num_classes=CLASSES).to(args.device)
    criterion = nn.CrossEntropyLoss()
    # It has no fused form: what it takes of a step is less only in larger batches.
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)

    steps_left = args.steps
    for epoch in range(1, args.epochs + 1):
        steps, train_loss = train_epoch(model, train_loader, criterion, optimizer, args.device, steps_left)
        # A shortened training is followed by an evaluation that is shortened with it.
        test_steps = max(1, steps // 5) if args.steps else None
        test_loss, accuracy = evaluate(model, test_loader, criterion, args.device, test_steps)
        print(f"epoch {epoch}: train loss {train_loss:.3f}, test loss {test_loss:.3f}, accuracy {accuracy:.1%}")
        if args.steps:
            steps_left -= steps
            if steps_left == 0:
                break


def train_epoch(model, loader, criterion, optimizer, device, max_steps=None):
    """Train for one epoch, or for ``max_steps`` of it; return the steps taken and their mean loss."""
    model.train()
    step, loss_sum = 0, 0.0
    bar = progress("train", loader, max_steps)
    for images, labels in bar:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        loss = criterion(logits, labels)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        step += 1
        loss_sum += loss.item()
        bar.set_postfix(loss=f"{loss_sum / step:.3f}")
    return step, loss_sum / step


@torch.no_grad()
def evaluate(model, loader, criterion, device, max_steps=None):
    """Return mean loss and accuracy over the test set, or over its first ``max_steps`` batches."""
    model.eval()
    loss_sum, correct, seen = 0.0, 0, 0
    for images, labels in progress("test", loader, max_steps):
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        loss_sum += criterion(logits, labels).item() * len(labels)
        correct += (logits.argmax(dim=1) == labels).sum().item()
        seen += len(labels)
    return loss_sum / seen, correct / seen


def progress(name, loader, max_steps):
    """Wrap the first ``max_steps`` batches of a loader, or all of them, in a progress bar."""
    total = min(len(loader), max_steps or len(loader))
    return tqdm(islice(loader, total), desc=name, total=total)


def load_datasets(folder):
    """Return CIFAR-10's training and test sets out of ``folder``; without one, random images in their place."""
    normalize = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    augment = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.AugMix()]
    train_transform, test_transform = transforms.Compose(augment + normalize), transforms.Compose(normalize)
    if folder is not None:
        return datasets.CIFAR10(folder, True, train_transform), datasets.CIFAR10(folder, False, test_transform)
    return (
        datasets.FakeData(50_000, (3, 32, 32), CLASSES, train_transform),
        datasets.FakeData(10_000, (3, 32, 32), CLASSES, test_transform),
    )


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="DIR", help="folder that holds cifar-10-batches-py (default: random images)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data (default: none)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="stop training after this many optimizer steps in all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.epochs < 1 or (args.steps is not None and args.steps < 1):
        parser.error("--epochs and --steps must be at least 1")
    return args


if __name__ == "__main__":
    main()
