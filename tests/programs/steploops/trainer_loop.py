"""Steps as Hugging Face's Trainer does, whose own count is an attribute. Usage: trainer_loop.py DIARY."""

from collections.abc import Iterator

import diary


class State:
    global_step = 0


class Trainer:
    def __init__(self) -> None:
        self.state = State()

    def train(self) -> None:
        return self._inner_training_loop(batch_size=8)

    def _inner_training_loop(self, batch_size: int) -> None:
        epochs_trained = steps_trained_in_current_epoch = 0
        for epoch in range(epochs_trained, 1_000):
            epoch_iterator = self.get_dataloader(batch_size)
            steps_in_epoch = 150
            for step, inputs in enumerate(epoch_iterator):
                if steps_trained_in_current_epoch > step:
                    continue
                self.training_step(inputs)
                self.state.global_step += 1
                self.state.epoch = epoch + (step + 1) / steps_in_epoch  # type: ignore[attr-defined]
                diary.stepped()

    def get_dataloader(self, batch_size: int) -> Iterator[list[float]]:
        for _ in range(150):
            diary.work(0.005)
            yield [0.5] * batch_size

    def training_step(self, inputs: list[float]) -> float:
        for _ in range(3):
            diary.work(0.01)
        return sum(inputs)


diary.begin()
Trainer().train()
