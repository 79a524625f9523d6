"""A regression under a trainer whose tracking logger sends each metric of each step to a server, and waits for the answer.

Complaint: Lightning-AI/pytorch-lightning, issue 3393, "MLFlow Logger slows training steps dramatically": with a remote tracking server there are
2 to 3 times fewer iterations a second. mlflow issues 1550 and 1867 say the same: each metric is a request of its own, over a new connection. Fix:
collect the metrics, and send them once in a while. The server here is another process of this machine, which takes 1 ms for a request.
"""

import http.client
import json
import multiprocessing
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class Tracking(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.001)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(ports, parent):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tracking)
    server.timeout = 1
    ports.put(server.server_port)
    while os.getppid() == parent:
        server.handle_request()


class TrackingLogger:
    def __init__(self, port, diary, every):
        self.port, self.diary, self.every, self.kept = port, diary, every, []

    def log_metrics(self, metrics, step):
        self.kept += [{"key": key, "value": value, "step": step} for key, value in metrics.items()]
        if step % self.every == 0:
            with self.diary.planted():
                for metric in self.kept if self.every == 1 else [self.kept]:
                    self.send(metric)  # planted
            self.kept = []

    def send(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/api/2.0/mlflow/runs/log-metric", json.dumps(body))  # planted
        connection.getresponse().read()  # planted
        connection.close()


class Trainer:
    def __init__(self, logger, diary):
        self.logger, self.diary, self.global_step = logger, diary, 0

    def fit(self, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        while True:
            batch = torch.randn(512, 64)
            loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.global_step += 1
            metrics = {"train_loss": float(loss.detach()), "lr": optimizer.param_groups[0]["lr"]}
            self.logger.log_metrics(metrics, self.global_step)  # planted
            self.diary.stepped()


def main():
    diary, is_mended = begin()
    ports = multiprocessing.SimpleQueue()
    multiprocessing.Process(target=serve, args=(ports, os.getpid()), daemon=True).start()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    Trainer(TrackingLogger(ports.get(), diary, 200 if is_mended else 1), diary).fit(model)


if __name__ == "__main__":
    torch.manual_seed(21)
    torch.set_num_threads(1)
    main()
