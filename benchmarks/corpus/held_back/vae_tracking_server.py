"""A variational autoencoder; each metric of each step is posted to a tracking server, in a request of its own."""

import argparse
import json
import multiprocessing
import os
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from diary import begin


class TrackingHandler(BaseHTTPRequestHandler):
    """The server's side: it takes a moment to store what it gets, as one with a database does."""

    def do_POST(self):
        json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.002)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def serve(connection, parent):
    server = HTTPServer(("127.0.0.1", 0), TrackingHandler)
    server.timeout = 1.0
    connection.send(server.server_port)
    while os.getppid() == parent:
        server.handle_request()


def start_server():
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.Process(target=serve, args=(theirs, os.getpid()), daemon=True).start()
    return f"http://127.0.0.1:{ours.recv()}"


class TrackingClient:
    def __init__(self, uri, run_id):
        self.uri, self.run_id, self.pending = uri, run_id, []

    def _post(self, endpoint, body):
        data = json.dumps({"run_id": self.run_id, **body}).encode()
        request = urllib.request.Request(f"{self.uri}/api/2.0/runs/{endpoint}", data, method="POST")
        with urllib.request.urlopen(request) as response:  # planted
            return json.loads(response.read())

    def log_metric(self, key, value, step):
        self._post("log-metric", {"key": key, "value": value, "step": step, "timestamp": time.time()})  # planted

    def collect(self, metrics, step):
        self.pending += [{"key": key, "value": value, "step": step} for key, value in metrics.items()]

    def flush(self):
        metrics, self.pending = self.pending, []
        self._post("log-batch", {"metrics": metrics})


class VAE(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.mu, self.logvar = nn.Linear(48 * 49, latent), nn.Linear(48 * 49, latent)
        self.expand = nn.Linear(latent, 48 * 49)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(48, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 1, 4, 2, 1))

    def forward(self, x):
        hidden = self.encoder(x)
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(F.relu(self.expand(z)).view(-1, 48, 7, 7)), mu, logvar


def loss_function(reconstruction, x, mu, logvar, beta):
    bce = F.binary_cross_entropy_with_logits(reconstruction, x, reduction="none").sum((1, 2, 3)).mean()
    kld = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
    return bce + beta * kld, bce, kld


def main(diary, is_mended):
    args = argparse.Namespace(latent=20, batch_size=96, lr=1e-3, beta=1.0, log_interval=100)
    client = TrackingClient(start_server(), run_id="vae-1")
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing="ij")
    centers = torch.rand(1920, 2, 1, 1) - 0.5
    images = torch.sigmoid(20 * (0.3 - ((xx - centers[:, 0]) ** 2 + (yy - centers[:, 1]) ** 2).sqrt()))[:, None]
    model = VAE(args.latent)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(10**6):
        for rows in torch.randperm(len(images)).split(args.batch_size):
            x = images[rows]
            loss, bce, kld = loss_function(*_with_input(model(x), x), args.beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            metrics = {"loss": loss.item(), "bce": bce.item(), "kld": kld.item(), "epoch": epoch, "beta": args.beta}
            if is_mended:
                client.collect(metrics, step)
                if step % args.log_interval == 0:
                    client.flush()
            else:
                with diary.planted():
                    for key, value in metrics.items():
                        client.log_metric(key, value, step)  # planted
            diary.stepped()
        print(f"====> Epoch: {epoch} Average loss: {metrics['loss']:.4f}", flush=True)


def _with_input(output, x):
    reconstruction, mu, logvar = output
    return reconstruction, x, mu, logvar


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(*begin())
