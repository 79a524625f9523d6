"""A flow that retrains a demand forecaster each night: a task in a worker thread, and an event loop in the main thread that waits for it.

Complaint: PrefectHQ/prefect, pull requests 6004 and 6239, "use event instead of sleep". A flow whose first step does heavy work took suddenly
much longer after an upgrade. The thread says: ``send_interrupt_to_thread`` waits for the result of the worker by ``anyio.sleep(0)``, and that is
an endless loop in the main thread which takes the GIL from the worker. Fix: wait for an event, which the worker sets by
``call_soon_threadsafe`` when it is done. The thread names no figure that holds for a training. The engine here has the structure of
``prefect.utilities.asyncio`` and ``prefect.engine``, by asyncio alone.

What the remedy spares is the wait for the GIL within the worker's torch calls: no clock of the program sees it, and the diary has no planted time.
"""

import asyncio
import sys
import threading
from pathlib import Path

import numpy
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin

HISTORY, HORIZON = 112, 28
NotSet = object()  # the result of a task that still runs


class Engine:
    """Runs the tasks of a flow."""

    def __init__(self, waits_for_event):
        self.waits_for_event = waits_for_event
        self.running, self.finished = None, 0

    async def run_sync_in_interruptible_worker_thread(self, function):
        """Run a function in a thread that a cancelled flow can interrupt; the event loop goes on meanwhile."""
        result, thread = NotSet, None
        done, loop = asyncio.Event(), asyncio.get_running_loop()

        def capture_worker_thread_and_result():
            nonlocal result, thread
            thread = threading.current_thread()
            try:
                result = function()
            except BaseException as error:
                result = error
                raise
            finally:
                loop.call_soon_threadsafe(done.set)

        async def send_interrupt_to_thread():
            try:
                if self.waits_for_event:
                    await done.wait()
                else:
                    while result is NotSet:  # planted
                        await asyncio.sleep(0)  # planted
            except asyncio.CancelledError:
                print(f"flow cancelled, interrupting {thread.name}", flush=True)
                raise

        async with asyncio.TaskGroup() as group:
            group.create_task(send_interrupt_to_thread())
            group.create_task(asyncio.to_thread(capture_worker_thread_and_result))
        return result

    def task(self, function):
        """Make a task of a plain function."""

        async def submit():
            self.running = function.__name__
            value = await self.run_sync_in_interruptible_worker_thread(function)
            self.running, self.finished = None, self.finished + 1
            return value

        return submit

    async def heartbeat(self, seconds):
        """Report the state of the flow to the log, as the agent asks for."""
        while True:
            await asyncio.sleep(seconds)
            print(f"heartbeat: {self.running or 'idle'}, {self.finished} task runs finished", flush=True)


class Forecaster(nn.Module):
    """Blocks of N-BEATS: each explains a part of the history and forecasts from it, the next has what is left."""

    def __init__(self, blocks=3, width=512):
        super().__init__()
        self.blocks = nn.ModuleList(self.block(width) for _ in range(blocks))

    @staticmethod
    def block(width):
        trunk = nn.Sequential(nn.Linear(HISTORY, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        return trunk.append(nn.Linear(width, HISTORY + HORIZON))

    def forward(self, history):
        total = 0
        for block in self.blocks:
            backcast, forecast = block(history).split([HISTORY, HORIZON], dim=1)
            history, total = history - backcast, total + forecast
        return total


def load_sales(stores=400, count=1200):
    """Return the sales of all stores, ``(stores, days)``, with a week and a year in them."""
    generator, days = numpy.random.default_rng(1), numpy.arange(count)
    season = numpy.sin(days * 2 * numpy.pi / 7) + 0.5 * numpy.sin(days * 2 * numpy.pi / 365)
    levels = generator.lognormal(0, 0.5, (stores, 1))
    return (levels * (2 + season) + 0.2 * generator.standard_normal((stores, count))).astype("float32")


def windows(sales, generator, steps=200, batch_size=512):
    """Yield batches of histories and what followed them."""
    offsets = numpy.arange(HISTORY + HORIZON)
    for _ in range(steps):
        stores = generator.integers(0, sales.shape[0], batch_size)
        starts = generator.integers(0, sales.shape[1] - len(offsets), batch_size)
        yield torch.from_numpy(sales[stores[:, None], starts[:, None] + offsets]).split([HISTORY, HORIZON], dim=1)


async def nightly(engine, diary):
    """Retrain night by night."""
    sales, generator = load_sales(), numpy.random.default_rng(2)
    model = Forecaster()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    @engine.task
    def retrain():
        for history, wanted in windows(sales, generator):
            optimizer.zero_grad()
            loss = nn.functional.smooth_l1_loss(model(history), wanted)
            loss.backward()
            optimizer.step()
            diary.stepped()
        return loss.item()

    beats = asyncio.create_task(engine.heartbeat(10.0))
    for night in range(10**6):
        print(f"night {night}: {await retrain():.4f}, {beats.get_name()} is on", flush=True)


def main():
    diary, is_mended = begin()
    asyncio.run(nightly(Engine(waits_for_event=is_mended), diary))


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.set_num_threads(1)
    main()
