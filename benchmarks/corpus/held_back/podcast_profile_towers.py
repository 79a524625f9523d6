"""Two towers that retrieve podcasts, with in-batch negatives; what is known of the listeners lies in a shelf."""

import random
import shelve
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

LISTENERS, SHOWS, TOPICS, RECENT = 6_000, 4_000, 32, 24


class ProfileShelf:
    """The profiles of listeners, one record a listener."""

    def __init__(self, folder):
        self.path = str(folder / "profiles")
        self.rng = random.Random(11)
        with shelve.open(self.path, "n") as shelf:  # noqa: S301
            for listener in range(LISTENERS):
                shelf[str(listener)] = self._made_up(listener)
        self.shelf = shelve.open(self.path, "r")  # noqa: S301, SIM115

    def _made_up(self, listener):
        taste = listener % TOPICS
        return {
            "country": self.rng.randrange(40),
            "device": self.rng.choice(["phone", "desktop", "speaker", "car"]),
            "topics": [self.rng.random() + (topic == taste) for topic in range(TOPICS)],
            "recent": [(taste + TOPICS * self.rng.randrange(SHOWS // TOPICS)) % SHOWS for _ in range(RECENT)],
            "minutes": {f"2024-{month:02}": self.rng.randrange(3000) for month in range(1, 13)},
        }

    def look_up(self, listeners):
        """Return the countries, the topics and the shows heard last of some listeners."""
        profiles = [self.shelf[str(listener)] for listener in listeners.tolist()]  # planted
        return (
            torch.tensor([profile["country"] for profile in profiles]),
            torch.tensor([profile["topics"] for profile in profiles]),  # planted
            torch.tensor([profile["recent"] for profile in profiles]),  # planted
        )


class ProfileTable:
    """The same profiles as tensors, read once."""

    def __init__(self, shelf):
        self.columns = shelf.look_up(torch.arange(LISTENERS))

    def look_up(self, listeners):
        return tuple(column[listeners] for column in self.columns)


class ListenerTower(nn.Module):
    def __init__(self, shows, width):
        super().__init__()
        self.shows = shows
        self.country = nn.Embedding(40, 16)
        self.mlp = nn.Sequential(
            nn.Linear(16 + TOPICS + width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, width)
        )

    def forward(self, country, topics, recent):
        heard = self.shows(recent).mean(1)
        return F.normalize(self.mlp(torch.cat([self.country(country), topics, heard], dim=1)), dim=1)


class ShowTower(nn.Module):
    def __init__(self, shows, width):
        super().__init__()
        self.shows = shows
        self.mlp = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, width)
        )

    def forward(self, show):
        return F.normalize(self.mlp(self.shows(show)), dim=1)


class TwoTowers(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        shows = nn.Embedding(SHOWS, width)
        self.listener, self.show = ListenerTower(shows, width), ShowTower(shows, width)
        self.scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, profiles, shows, popularity):
        scores = self.listener(*profiles) @ self.show(shows).T * self.scale.exp()
        return F.cross_entropy(scores - popularity[shows].log(), torch.arange(len(shows)))


def plays(count):
    """Who played what: listeners keep to a topic, and some shows are played by all."""
    listeners = torch.randint(LISTENERS, (count,))
    within = (torch.rand(count) ** 2 * (SHOWS // TOPICS)).long() * TOPICS
    return listeners, (listeners % TOPICS + within) % SHOWS


def train(model, optimizer, source, diary, is_mended, batch_size=320):
    listeners, shows = plays(200_000)
    popularity = (torch.bincount(shows, minlength=SHOWS) + 1) / len(shows)
    epoch = 0
    while True:
        total, count = torch.zeros(()), 0
        for chosen in torch.randperm(len(listeners)).split(batch_size):
            if is_mended:
                profiles = source.look_up(listeners[chosen])
            else:
                with diary.planted():
                    profiles = source.look_up(listeners[chosen])  # planted
            loss = model(profiles, shows[chosen], popularity)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            count += 1
            diary.stepped()
        epoch += 1
        print(f"epoch {epoch}: loss {total.item() / count:.4f}", flush=True)


def main():
    diary, is_mended = begin()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = TwoTowers()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        shelf = ProfileShelf(Path(folder))
        train(model, optimizer, ProfileTable(shelf) if is_mended else shelf, diary, is_mended)


if __name__ == "__main__":
    main()
