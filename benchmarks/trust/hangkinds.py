"""Ten kinds of hang, each with a healthy twin that takes long at the same place: whether profd
reports the hang in time, by its cause, with the party that is waited for, and keeps silent about
the twin.

    python benchmarks/run.py hangkinds [--jobs N] [--only KIND] [--rounds N]

Takes about ten minutes, as root: it needs network and mount namespaces, /dev/fuse and gcc, and says
which kinds it could not make. Writes its section of ``docs/measurements.md`` if it made all kinds,
and ends with 1 if something of that was not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from common.measurements import write_section
from support import gpusim
from support.sessions import begin_session
from trust.hangs import hangs, wait_for_hang

from profd.daemon.clock import SECOND_NS

TESTS = Path(gpusim.__file__).parents[1]
HANG_AFTER_S = 30.0
"""As the command line has it."""
WITHIN_S = 30.0
LONG_S = 45.0
"""How long a healthy twin takes at the place of the hang."""
METHOD = (
    "`benchmarks/trust/hangkinds.py`: each program trains, then waits for ever at a planted place; profd, "
    "attached with the default `--hang-after`, must report that within 30 s, by this cause, and name "
    "the party that is waited for. Its twin takes {long:g} s at the same place and goes on: profd "
    "must not report it. NCCL is a stand-in for its RAS service, the stuck kernel one for "
    "`torch.cuda` beside the simulated GPU driver, which keeps the GPU at 100 % with little power and "
    "no traffic of its memory (the twin: much of both). All else is real: gloo, CPython's lock, "
    "`fork`, libgomp, a resolver in a network namespace whose server does not answer, a file system "
    "by FUSE whose server does not answer."
)

_HEAD = """
import ctypes, multiprocessing, os, signal, socket, subprocess, sys, threading, time
FOLDER, SECONDS = sys.argv[1], float(sys.argv[2])
IS_HEALTHY = SECONDS > 0

def train(seconds):
    ends = time.monotonic() + seconds
    for step in range(1_000_000_000):
        if time.monotonic() > ends:
            return
        sum(range(300_000))
        time.sleep(0.02)

def work(seconds):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(9_999))

def stops():
    print("stops", time.time_ns(), flush=True)

def wait_or_work():
    work(SECONDS) if IS_HEALTHY else threading.Event().wait()

if os.environ.get("RANK", "0") == "0":  # one of them alone: all write to one pipe
    print("ready", flush=True)
"""

_NCCL = """
sys.path.insert(0, {tests!r})
import mmap, struct
from support.ras import FakeCommunicator, FakeRank, RasServer
rank = int(os.environ["RANK"])

def shared(name, size):
    fd = os.open(FOLDER + "/" + name, os.O_RDWR | os.O_CREAT)
    os.truncate(fd, size)
    return mmap.mmap(fd, size)

library = shared("libnccl.so.2.30.7", 4096)
state = memoryview(shared("state", 32)).cast("q")  # two PIDs, two counts
state[rank] = os.getpid()

class Counted(list):
    def __iter__(self):
        ranks = [FakeRank(one, state[one]) for one in range(2)]
        for one in ranks:
            one.launch("AllReduce", state[2 + one.rank])
        return iter([FakeCommunicator(ranks)])

    def __len__(self):
        return 1

def all_reduce():
    state[2 + rank] += 1
    os.write(pipes[1 - rank], b"x")
    os.read(pipes[rank], 1)

def load_shard():
    wait_or_work()

for one in range(2):
    try:
        os.mkfifo(f"{FOLDER}/pipe{one}")
    except FileExistsError:
        pass
pipes = [os.open(f"{FOLDER}/pipe{one}", os.O_RDWR) for one in range(2)]
with RasServer([], port=int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])) as server:
    server.communicators = Counted()
    while not all(state[:2]):
        time.sleep(0.01)
    for step in range(500):
        work(0.005)
        time.sleep(0.02)
        if rank == 1 and step == 400:
            stops()
            load_shard()
        all_reduce()
os._exit(0)
"""

_GLOO = """
import torch, torch.distributed
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
torch.distributed.init_process_group(
    "gloo", init_method="file://" + FOLDER + "/store", rank=rank, world_size=3
)

def load_shard():
    wait_or_work()

tensor = torch.ones(8)
for step in range(400):
    work(0.005)
    time.sleep(0.02)
    if rank == 1 and step == 300:
        stops()
        load_shard()
    torch.distributed.all_reduce(tensor)
"""

_GIL = """
def decode():
    python = ctypes.PyDLL(None)  # keeps Python's lock during the call
    if not IS_HEALTHY:
        python.read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
    ends, number = time.monotonic() + SECONDS, 3 ** 2_000_000
    while time.monotonic() < ends:
        number * number % (number + 2)

train(10)
stops()
threading.Thread(target=decode, name="decoder").start()
train(LAST := 5)
"""

_FORK = """
lock = threading.Lock()

def write_log():
    with lock:
        time.sleep(1)

def save_in_child():
    if not IS_HEALTHY:
        with lock:
            pass
    work(SECONDS)
    os._exit(0)

train(10)
threading.Thread(target=write_log).start()
time.sleep(0.2)
stops()
child = os.fork()
if child == 0:
    save_in_child()
os.waitpid(child, 0)
"""

_OPENMP_C = """
#include <omp.h>
#include <time.h>
#include <unistd.h>
void normalize(int fd, double seconds) {
    #pragma omp parallel num_threads(2)
    {
        char byte;
        time_t ends = time(0) + (time_t)seconds;
        while (time(0) < ends) {}
        if (omp_get_thread_num() == 1 && fd >= 0 && read(fd, &byte, 1)) {}
    }
}
"""

_OPENMP = """
library = ctypes.CDLL(FOLDER + "/libnormalize.so")
pipe = os.pipe()

def normalize_images():
    library.normalize(-1 if IS_HEALTHY else pipe[0], ctypes.c_double(SECONDS))

train(10)
stops()
normalize_images()
"""

_PIPE = """
CHILD = '''
import sys, threading, time
for line in sys.stdin:
    seconds = float(line)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(9999))
    if seconds < 0:
        threading.Event().wait()
    print("tokens", flush=True)
'''

def tokenize(seconds):
    child.stdin.write(f"{seconds}\\n")
    child.stdin.flush()
    return child.stdout.readline()

pipe = subprocess.PIPE
child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=pipe, stdout=pipe, text=True)
train(10)
tokenize(0)
stops()
tokenize(SECONDS if IS_HEALTHY else -1)
os._exit(0)
"""

_DNS_SERVER = """
import socket, sys, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.9.9.9", 53))
while sys.argv[1] != "0":
    question, sender = server.recvfrom(4096)
    time.sleep(1)
    server.sendto(question[:2] + bytes([0x81, 0x83]) + question[4:], sender)
time.sleep(3600)
"""

_DNS = """
def resolve(name):
    try:
        return socket.getaddrinfo(name, 443)
    except OSError:
        return None

def list_shards():
    ends, number = time.monotonic() + SECONDS, 0
    while not IS_HEALTHY or time.monotonic() < ends:
        resolve(f"shard{number}.storage.example.")
        number += 1
        if IS_HEALTHY:
            work(0.5)

train(10)
stops()
list_shards()
"""

_FUSE_SERVER = """
import ctypes, os, struct, sys, time
folder, mount = sys.argv[1], sys.argv[2]
fd = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"fileserver:/shards", mount.encode(), b"fuse.sshfs", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True)

def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100644, 1 << 40)
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

while True:
    data = os.read(fd, 1 << 20)
    length, opcode, unique, node = struct.unpack_from("<IIQQ", data)
    if opcode == 26:  # INIT
        answer = struct.pack("<4I2H2I2H7I", 7, 31, 1 << 16, 0, 8, 8, 1 << 16, 1, 0, 0, *[0] * 7)
    elif opcode == 1:  # LOOKUP
        answer = struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    elif opcode == 3:  # GETATTR
        answer = struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    elif opcode in (14, 27):  # OPEN, OPENDIR; without the page cache
        answer = struct.pack("<QII", 1, 1, 0)
    elif opcode == 15:  # READ
        if os.path.exists(folder + "/dead"):
            continue
        time.sleep(0.2 if os.path.exists(folder + "/slow") else 0)
        answer = bytes(struct.unpack_from("<I", data, 56)[0])
    elif opcode in (2, 36, 42):  # FORGET, INTERRUPT: without an answer
        continue
    else:
        answer = b""
    os.write(fd, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
"""

_FILES = """
def read_shard():
    return os.read(shard, 1 << 16)

shard = os.open(FOLDER + "/mount/shard-7.tar", os.O_RDONLY)
train(10)
read_shard()
open(FOLDER + ("/slow" if IS_HEALTHY else "/dead"), "w").close()
stops()
ends = time.monotonic() + SECONDS
while True:
    read_shard()
    if IS_HEALTHY and time.monotonic() > ends:
        break
os._exit(0)
"""

_WORKER = """
def prepare(tasks, batches):
    for number in iter(tasks.get, None):
        if number < 0:
            work(SECONDS) if IS_HEALTHY else os.kill(os.getpid(), signal.SIGKILL)
        batches.put(number)

def next_batch(number):
    tasks.put(number)
    return batches.get()

context = multiprocessing.get_context("fork")
tasks, batches = context.Queue(), context.Queue()
workers = [
    context.Process(target=prepare, args=(tasks, batches), daemon=True) for _ in range(2)
]
for one in workers:
    one.start()
for step in range(200):
    work(0.01)
    time.sleep(0.02)
    next_batch(step)
stops()
next_batch(-1)
"""

_CUDA = """
import time
def synchronize(until_s):
    while time.monotonic() < until_s: pass
"""

_OPTIMIZER = """
class SGD:
    def step(self):
        for _ in range(20):
            sum(range(20_000))
"""

_KERNEL = """
sys.path.insert(0, FOLDER + "/site-packages")
import torch.cuda, torch.optim.sgd
optimizer = torch.optim.sgd.SGD()
SCENARIO, DEVICE = os.environ["FAKE_NVML_SCENARIO"], "gpu1" if IS_HEALTHY else "gpu0"
BEGIN_S = float(open(SCENARIO).read().split("start_unix_s,,")[1].splitlines()[0])

def tell(name, value, key=""):
    with open(SCENARIO, "a") as file:
        file.write(f"{time.time() - BEGIN_S:.6f},{DEVICE},{name},{key},{value}\\n")

def tell_load(share, watts, memory_percent):
    tell("utilization_share", share)
    tell("power_watts", watts)
    tell("drawn_watts", watts)
    tell("gpm", 100 * share, 1)
    tell("gpm", memory_percent, 10)

tell("process_memory_bytes", 1 << 30, os.getpid())

def train_on_gpu():
    for step in range(500):
        if step == 400:
            stops()
            tell_load(1, 600 if IS_HEALTHY else 160, 60 if IS_HEALTHY else 0)
            torch.cuda.synchronize(time.monotonic() + (SECONDS or 1e9))
        tell_load(1, 500, 40)
        torch.cuda.synchronize(time.monotonic() + 0.02)
        tell_load(0, 150, 0)
        optimizer.step()

train_on_gpu()
"""


class Kind(NamedTuple):
    """A kind of hang: its program, what it is to be called, and what names the awaited party."""

    name: str
    program: str
    causes: tuple[str, ...]
    party: str
    """A pattern that the report's sentence has to match."""


KINDS = (
    Kind("NCCL", _NCCL, ("collective",), r"rank 1 \(pid \d+\) has not come to AllReduce \d+"),
    Kind("gloo", _GLOO, ("collective",), r"rank 1 \(pid \d+\) stands in \S+ \(train"),
    Kind("GIL", _GIL, ("lock",), r"waits for the GIL, which thread decoder holds in decode"),
    Kind(
        "fork",
        _FORK,
        ("lock",),
        r"no other thread .* fork of .+ \(pid \d+\), whose threads are gone",
    ),
    Kind("OpenMP", _OPENMP, ("lock", "blocked read"), r"thread \S+ .*reads a pipe"),
    Kind("pipe", _PIPE, ("blocked read",), r"held by \w+ \d+ \(pid \d+\)"),
    Kind("DNS", _DNS, ("blocked read",), r"10\.9\.9\.9:53 by UDP"),
    Kind("file system", _FILES, ("blocked read",), r"fileserver:/shards"),
    Kind("dead worker", _WORKER, ("dead worker",), r"\w+ \d+ \(pid \d+\) was ended by SIGKILL"),
    Kind("stuck kernel", _KERNEL, ("gpu",), r"a kernel runs in gpu0"),
)


class Said(NamedTuple):
    """What profd said of a program: after how many seconds of its stop, the cause, the sentence."""

    kind: Kind
    is_healthy: bool
    after_s: float | None
    cause: str
    text: str

    @property
    def in_time(self) -> bool:
        return self.after_s is not None and self.after_s <= WITHIN_S

    @property
    def is_caused(self) -> bool:
        return self.cause in self.kind.causes

    @property
    def is_named(self) -> bool:
        return re.search(self.kind.party, self.text) is not None

    @property
    def is_right(self) -> bool:
        if self.is_healthy:
            return self.after_s is None
        return self.in_time and self.is_caused and self.is_named


def command(kind: Kind, folder: Path, seconds: float) -> list[str]:
    """Return the command of a kind; ``seconds`` is 0 for the one that hangs."""
    script = folder / "train.py"
    script.write_text(_HEAD + kind.program.replace("{tests!r}", repr(str(TESTS))))
    words = [sys.executable, str(script), str(folder), str(seconds)]
    match kind.name:
        case "NCCL" | "gloo":
            count = 2 if kind.name == "NCCL" else 3
            ranks = " ".join(f"RANK={rank} {' '.join(words)} &" for rank in range(count))
            return ["sh", "-c", f"{ranks} wait"]
        case "OpenMP":
            source = folder / "normalize.c"
            source.write_text(_OPENMP_C)
            library = folder / "libnormalize.so"
            options = ["-O1", "-fopenmp", "-shared", "-fPIC"]
            subprocess.run(["gcc", *options, "-o", library, source], check=True)
        case "DNS":
            server = folder / "server.py"
            server.write_text(_DNS_SERVER)
            (folder / "resolv.conf").write_text("nameserver 10.9.9.9\n")
            before = (
                "ip link set lo up; ip address add 10.9.9.9/32 dev lo; "
                f"mount --bind {folder}/resolv.conf /etc/resolv.conf; "
                f"({sys.executable} {server} {seconds:g} >/dev/null &)"
            )
            return ["unshare", "--net", "--mount", "sh", "-c", f'{before}; exec "$@"', "sh", *words]
        case "file system":
            server = folder / "server.py"
            server.write_text(_FUSE_SERVER)
            (folder / "mount").mkdir()
            serve = f"{sys.executable} {server} {folder} {folder}/mount"
            before = f"({serve} > {folder}/said &); until grep -q mounted {folder}/said; do sleep .1; done"
            return ["unshare", "--mount", "sh", "-c", f'{before}; exec "$@"', "sh", *words]
        case "stuck kernel":
            package = folder / "site-packages/torch"
            for name in ("cuda", "optim"):
                (package / name).mkdir(parents=True)
            for name in ("__init__", "optim/__init__"):
                (package / f"{name}.py").touch()
            (package / "cuda/__init__.py").write_text(_CUDA)
            (package / "optim/sgd.py").write_text(_OPTIMIZER)
    return words


@contextlib.contextmanager
def started(kind: Kind, folder: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Run a program; it ends with all that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"localhost:{free.getsockname()[1]}"
    process = subprocess.Popen(
        command(kind, folder, seconds),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"NCCL_RAS_ADDR": address},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run_once(kind: Kind, is_healthy: bool) -> Said:
    """Run a program under profd, and return what was said of it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        seconds = LONG_S if is_healthy else 0.0
        with started(kind, Path(name), seconds) as process:
            assert process.stdout is not None
            lines = (line.split() for line in process.stdout)
            next(line for line in lines if line == ["ready"])
            session = begin_session(process.pid, hang_after_s=HANG_AFTER_S)
            stopped_ns = next(int(line[1]) for line in lines if line[:1] == ["stops"])
            if is_healthy:
                process.wait(4 * LONG_S)
            else:
                wait_for_hang(session)
            session.end()
            session.wait_closed(60)
        found = hangs(session)
    if not found:
        return Said(kind, is_healthy, None, "nothing", "")
    hang = found[0]
    after_s = (hang.at_ns - stopped_ns) / SECOND_NS
    text = " | ".join([hang.text, *hang.report.facts])
    return Said(kind, is_healthy, after_s, hang.report.cause, text)


def simulate_gpus(folder: Path) -> None:
    """Put a driver with two GPUs in the place of this machine's, for all that is started here."""
    driver = gpusim.SimulatedDriver(gpusim.build(folder), folder, time.time_ns())
    for number in range(2):
        driver.add_gpu(f"gpu{number}", memory_total_bytes=80 << 30, memory_used_bytes=2 << 30)
        driver.add("power_limit_watts", 700, f"gpu{number}")
        driver.add("utilization_share", 0, f"gpu{number}")
    os.environ |= driver.environment
    del os.environ["FAKE_NVML_CALLS"]


def row(kind: Kind, all_said: list[Said]) -> str:
    """Return the row of a kind in the table."""
    mine = [one for one in all_said if one.kind is kind]
    stops = [one for one in mine if not one.is_healthy]
    slowest_s = max((one.after_s or float("inf") for one in stops), default=float("nan"))
    cells = [
        kind.name,
        " or ".join(kind.causes),
        len(stops),
        sum(one.is_caused for one in stops),
        sum(one.is_named for one in stops),
        f"{slowest_s:.1f}",
        sum(one.is_healthy for one in mine),
        sum(one.is_healthy and not one.is_right for one in mine),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Run all kinds and their twins, and write the section; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=4, help="programs at once [4]")
    parser.add_argument("--only", default="", help="kinds with this in their name alone")
    parser.add_argument("--rounds", type=int, default=1, help="of each program [1]")
    parser.add_argument("--without-twins", action="store_true")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.only in kind.name]
    is_healthy = [False] if options.without_twins else [False, True]
    plan = [(kind, one) for one in is_healthy for kind in kinds] * options.rounds
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(options.jobs) as pool:
        os.environ["PROFD_HOME"] = home
        simulate_gpus(Path(home))
        said = []
        for one in pool.map(run_once, *zip(*plan, strict=True)):
            what = f"{one.kind.name}{' (twin)' if one.is_healthy else ''}"
            after = "never" if one.after_s is None else f"after {one.after_s:.1f} s"
            print(f"{'ok   ' if one.is_right else 'WRONG'} {what}: {after}: {one.text}", flush=True)
            said.append(one)
    lines = [
        "| kind | cause | hangs | by this cause | party named | s, slowest | twins | alarms |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(row(kind, said) for kind in kinds),
    ]
    print("\n".join(lines))
    if len(kinds) == len(KINDS) and not options.without_twins:
        write_section("Ten kinds of hang", METHOD.format(long=LONG_S), lines)
    return 0 if all(one.is_right for one in said) else 1
