"""A search for hyperparameters behind a small dashboard: the study trains in a thread, and the pruner copies all trials at each report.

Complaint: optuna/optuna, issue 272, "Using pruning cause x2 more computation time", and issue 408, where a maintainer says what takes most of
the time of a study: Optuna applies ``copy.deepcopy()`` whenever trials are retrieved from the storage. Fix (pull request 696): an option
``deepcopy=False`` of ``get_trials``, for those who only read; 1000 trials take 2 s there instead of 20 s. Study, storage and pruner here have the
structure of Optuna 0.18. The dashboard has the main thread, and shows every five seconds how many trials there are.
"""

import copy
import math
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class TrialPruned(Exception):
    """Ends a trial that does worse than the others."""


@dataclass
class FrozenTrial:
    """What is stored of a trial."""

    number: int
    state: str = "RUNNING"
    value: float | None = None
    params: dict = field(default_factory=dict)
    intermediate_values: dict = field(default_factory=dict)


class InMemoryStorage:
    """Keeps the trials, and gives out copies, so that nobody changes them by accident."""

    def __init__(self):
        self._trials, self._lock = [], threading.RLock()

    def create_new_trial(self):
        with self._lock:
            self._trials.append(FrozenTrial(len(self._trials)))
            return self._trials[-1]

    def get_all_trials(self, deepcopy=True):
        with self._lock:
            return copy.deepcopy(self._trials) if deepcopy else list(self._trials)  # planted


class MedianPruner:
    """Prunes a trial whose best value so far is worse than the median of the others at that step."""

    def __init__(self, diary, n_startup_trials=5, n_warmup_steps=2):
        self.diary, self.n_startup_trials, self.n_warmup_steps = diary, n_startup_trials, n_warmup_steps

    def prune(self, study, trial, step):
        with self.diary.planted():
            trials = study.get_trials()  # planted
        complete = [one.intermediate_values for one in trials if one.state == "COMPLETE"]
        values = [reported[step] for reported in complete if step in reported]
        if step < self.n_warmup_steps or len(values) < self.n_startup_trials:
            return False
        return min(trial.intermediate_values.values()) > sorted(values)[len(values) // 2]


class Trial:
    """A running trial, as the objective sees it."""

    def __init__(self, study, frozen):
        self.study, self.frozen = study, frozen

    def suggest_float(self, name, low, high):
        return self.frozen.params.setdefault(name, math.exp(random.uniform(math.log(low), math.log(high))))

    def suggest_categorical(self, name, choices):
        return self.frozen.params.setdefault(name, random.choice(choices))

    def report(self, value, step):
        self.frozen.intermediate_values[step] = value

    def should_prune(self):
        return self.study.pruner.prune(self.study, self.frozen, max(self.frozen.intermediate_values))  # planted


class Study:
    """Runs trials of an objective."""

    def __init__(self, pruner, copies_trials):
        self.storage, self.pruner, self.copies_trials = InMemoryStorage(), pruner, copies_trials

    def get_trials(self):
        return self.storage.get_all_trials(deepcopy=self.copies_trials)  # planted

    def optimize(self, objective, n_trials):
        for _ in range(n_trials):
            trial = Trial(self, self.storage.create_new_trial())
            try:
                trial.frozen.value = objective(trial)
                trial.frozen.state = "COMPLETE"
            except TrialPruned:
                trial.frozen.state = "PRUNED"

    def load(self, trials, reports):
        """Add what an earlier search has found."""
        for _ in range(trials):
            trial = Trial(self, self.storage.create_new_trial())
            space(trial)
            trial.frozen.intermediate_values = {step: 2.0 + random.random() - step / reports for step in range(reports)}
            trial.frozen.state, trial.frozen.value = "COMPLETE", trial.frozen.intermediate_values[reports - 1]


def space(trial):
    """Return the learning rate, the weight decay, the width and the activation to try."""
    width, act = trial.suggest_categorical("width", [256, 288]), trial.suggest_categorical("act", [nn.ReLU, nn.SiLU])
    return trial.suggest_float("lr", 1e-4, 1e-2), trial.suggest_float("weight_decay", 1e-6, 1e-2), width, act


class Objective:
    """Trains a classifier on tables, and reports its loss to the trial every few steps."""

    def __init__(self, diary, steps=300, report_every=3):
        self.diary, self.steps, self.report_every = diary, steps, report_every
        self.features = torch.randn(20_000, 64)
        self.labels = (self.features[:, :16].cos().sum(1) > 9.7).long()

    def __call__(self, trial):
        rate, decay, width, act = space(trial)
        model = nn.Sequential(nn.Linear(64, width), act(), nn.Linear(width, width), act(), nn.Linear(width, 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
        for step in range(1, self.steps + 1):
            batch = torch.randint(0, len(self.labels), (256,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(self.features[batch]), self.labels[batch])
            loss.backward()
            optimizer.step()
            self.diary.stepped()
            if step % self.report_every == 0:
                trial.report(loss.item(), step // self.report_every)
                if trial.should_prune():  # planted
                    raise TrialPruned
        return loss.item()


def search(objective, pruner, copies_trials, page):
    """Search for ever: a study of 60 trials after the other, each from what an earlier search has found."""
    for _ in range(10**6):
        study = Study(pruner, copies_trials)
        study.load(trials=80, reports=100)
        page["study"] = study
        study.optimize(objective, n_trials=60)


def main():
    diary, is_mended = begin()
    page = {}
    args = Objective(diary), MedianPruner(diary), not is_mended, page
    worker = threading.Thread(target=search, args=args, name="study", daemon=True)
    worker.start()
    while worker.is_alive():
        time.sleep(5)
        states = [trial.state for trial in page["study"].storage.get_all_trials(deepcopy=False)]
        print(", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))), flush=True)


if __name__ == "__main__":
    torch.manual_seed(3)
    random.seed(3)
    torch.set_num_threads(1)
    main()
