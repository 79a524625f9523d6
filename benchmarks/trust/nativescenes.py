"""Programs whose threads wait, each in another situation, for ``benchmarks/trust/native.py``.

Each prints a line when it is ready. What it starts waits soon after that.
"""

from __future__ import annotations

from typing import NamedTuple

_HEAD = """
import os, sys, threading, time
def start(call, *arguments, daemon=True):
    thread = threading.Thread(target=call, args=arguments, daemon=daemon)
    thread.start()
    return thread
def ready():
    print("ready", flush=True)
def stay():
    ready()
    time.sleep(3600)
held = threading.Lock()
held.acquire()
def wait(*_):
    held.acquire()
    return 0
"""


class Scene(NamedTuple):
    """A program; ``needs`` is a module that it imports, if it is not of the standard library."""

    name: str
    text: str
    needs: str = ""

    @property
    def program(self) -> str:
        return _HEAD + self.text


SCENES = (
    Scene("sleep", "start(time.sleep, 3600)\nstay()"),
    Scene("lock", "start(wait)\nready()\nwait()"),
    Scene("lock with a timeout", "ready()\nheld.acquire(timeout=3600)"),
    Scene(
        "recursive lock",
        "lock = threading.RLock()\nlock.acquire()\nstart(lock.acquire)\nstay()",
    ),
    Scene("queue", "import queue\nstart(queue.Queue().get)\nready()\nqueue.SimpleQueue().get()"),
    Scene("event", "ready()\nthreading.Event().wait()"),
    Scene(
        "condition with a timeout",
        "c = threading.Condition()\ndef go():\n with c: c.wait(3600)\nstart(go)\nready()\ngo()",
    ),
    Scene("join", "one = start(wait)\nready()\none.join()"),
    Scene("barrier", "b = threading.Barrier(3)\nstart(b.wait)\nready()\nb.wait()"),
    Scene(
        "socket",
        "import socket\na, b = socket.socketpair()\nstart(a.recv, 1)\nready()\nb.recv_into(bytearray(9))",
    ),
    Scene(
        "accept",
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nready()\ns.accept()",
    ),
    Scene(
        "socket with a timeout",
        "import socket\na, b = socket.socketpair()\na.settimeout(3600)\nready()\na.recv(1)",
    ),
    Scene("child", "import subprocess\nready()\nsubprocess.run(['sleep', '3600'])"),
    Scene(
        "output of a child",
        "import subprocess\nready()\nsubprocess.run(['sleep', '3600'], capture_output=True)",
    ),
    Scene(
        "pipe",
        "r, w = os.pipe()\nstart(os.read, r, 1)\nready()\nopen(r, 'rb').readline()",
    ),
    Scene(
        "full pipe",
        "r, w = os.pipe()\nready()\nos.write(w, bytes(1 << 20))",
    ),
    Scene(
        "FIFO",
        "import tempfile\np = tempfile.mkdtemp() + '/f'\nos.mkfifo(p)\nready()\nopen(p)",
    ),
    Scene(
        "asyncio",
        "import asyncio\nasync def go():\n await asyncio.to_thread(wait)\nready()\nasyncio.run(go())",
    ),
    Scene(
        "file lock",
        "import fcntl, tempfile\np = tempfile.mkstemp()[1]\na, b = open(p), open(p)\n"
        "fcntl.flock(a, fcntl.LOCK_EX)\nready()\nfcntl.flock(b, fcntl.LOCK_EX)",
    ),
    Scene(
        "poll, select, epoll",
        "import select\nr, w = os.pipe()\np = select.poll()\np.register(r)\ne = select.epoll()\n"
        "e.register(r)\nstart(p.poll)\nstart(e.poll)\nready()\nselect.select([r], [], [])",
    ),
    Scene(
        "pool of processes",
        "import multiprocessing\nif __name__ == '__main__':\n"
        " with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "  ready()\n  pool.map(time.sleep, [3600] * 4)",
    ),
    Scene(
        "executor of processes",
        "from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing\n"
        "with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork')) as pool:\n"
        " one = pool.submit(time.sleep, 3600)\n ready()\n one.result()",
    ),
    Scene(
        "executor of threads",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        " found = [pool.submit(wait) for _ in range(8)]\n ready()\n found[0].result()",
    ),
    Scene("hundred threads", "for _ in range(100): start(wait)\nstay()"),
    Scene(
        "deep recursion",
        "def go(n):\n return wait() if not n else go(n - 1)\nready()\ngo(500)",
    ),
    Scene(
        "recursion through C",
        "def go(n):\n return wait() if not n else max([n], key=lambda _: go(n - 1) or 0)\n"
        "ready()\ngo(40)",
    ),
    Scene("signal", "import signal\nready()\nsignal.pause()"),
    Scene("awaited signal", "import signal\nready()\nsignal.sigwait([signal.SIGUSR1])"),
    Scene(
        "handler of a signal, in C",
        "import ctypes, signal\nlibc = ctypes.CDLL(None)\n"
        "kind = ctypes.CFUNCTYPE(None, ctypes.c_int)\nhandler = kind(wait)\n"
        "libc.signal(signal.SIGUSR1, handler)\nready()\nos.kill(os.getpid(), signal.SIGUSR1)",
    ),
    Scene(
        "after fork",
        "start(wait)\nif os.fork():\n stay()\nwait()",
    ),
    Scene(
        "held GIL",
        "import ctypes\nr, w = os.pipe()\n"
        "def hold(): ctypes.PyDLL(None).read(r, ctypes.create_string_buffer(1), 1)\n"
        "ready()\nthreading.Timer(.1, hold).start()\nheld.acquire(timeout=.3)\nprint()",
    ),
    Scene(
        "callback of the C library",
        "import ctypes\nkind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)\n"
        "ready()\nctypes.CDLL(None).qsort((ctypes.c_int * 9)(*range(9)), 9, 4, kind(wait))",
    ),
    Scene(
        "callbacks of C functions",
        "import functools, itertools, re\n"
        "start(sorted, [2, 1], )\n"
        "start(lambda: sorted([2, 1], key=wait))\n"
        "start(lambda: re.sub('a', wait, 'aa'))\n"
        "start(lambda: functools.reduce(wait, [1, 2, 3]))\n"
        "start(lambda: list(itertools.takewhile(wait, [1, 2])))\n"
        "start(lambda: list(map(wait, filter(None, [1]))))\nstay()",
    ),
    Scene(
        "special methods",
        "class A:\n __hash__ = __len__ = __del__ = __int__ = __index__ = wait\n"
        " def __eq__(self, o): return wait()\n def __getattr__(self, n): return wait()\n"
        " def __iter__(self): return self\n __next__ = wait\n"
        " def __enter__(self): return wait()\n def __exit__(self, *_): pass\n"
        "def enter():\n with A(): pass\n"
        "start(hash, A())\nstart(len, A())\nstart(int, A())\nstart(list, A())\nstart(enter)\n"
        "start(lambda: A() == 3)\nstart(lambda: A().x)\nstart(lambda: [1][A()])\nstay()",
    ),
    Scene(
        "finalizer",
        "import gc\nclass A:\n def __del__(self): wait()\na = A()\na.a = a\ndel a\nready()\ngc.collect()",
    ),
    Scene(
        "import",
        "import importlib.abc, importlib.machinery, importlib.util\n"
        "class L(importlib.abc.Loader):\n def exec_module(self, m): wait()\n"
        "class F:\n def find_spec(self, n, p=None, t=None):\n"
        "  return importlib.machinery.ModuleSpec(n, L()) if n == 'slow' else None\n"
        "sys.meta_path.insert(0, F())\nstart(__import__, 'slow')\ntime.sleep(.1)\nready()\nimport slow",
    ),
    Scene("end of the program", "start(wait, daemon=False)\nready()"),
    Scene("exit handler", "import atexit\natexit.register(wait)\nready()"),
    Scene(
        "database",
        "import sqlite3, tempfile\np = tempfile.mkdtemp() + '/d'\na = sqlite3.connect(p)\n"
        "a.create_function('w', 0, wait)\nready()\na.execute('select w()')",
    ),
    Scene(
        "queue between processes",
        "import multiprocessing\nq = multiprocessing.Queue()\nq.put(bytes(1 << 20))\nready()\n"
        "multiprocessing.Queue().get()",
    ),
    Scene(
        "lock between processes",
        "import multiprocessing\nl = multiprocessing.Lock()\nl.acquire()\nready()\nl.acquire()",
    ),
    Scene(
        "compiled text",
        "start(exec, compile('wait()', 'x', 'exec'), globals())\nstart(eval, 'wait()', globals())\nstay()",
    ),
    Scene(
        "arithmetic in threads",
        "import numpy\nnumpy.ones((600, 600)) @ numpy.ones((600, 600))\nready()\nwait()",
        "numpy",
    ),
    Scene(
        "OpenMP",
        "import torch\ntorch.set_num_threads(8)\n(torch.ones(1 << 22) + 1).sum()\n"
        "torch.ones(900, 900) @ torch.ones(900, 900)\nready()\nwait()",
        "torch",
    ),
    Scene(
        "hook of the backward pass",
        "import torch\nx = torch.ones(3, requires_grad=True)\ny = (x * 2).exp()\n"
        "y.register_hook(wait)\nready()\ny.sum().backward()",
        "torch",
    ),
    Scene(
        "function of the backward pass",
        "import torch\nclass F(torch.autograd.Function):\n"
        " @staticmethod\n def forward(c, x): return x * 1\n"
        " @staticmethod\n def backward(c, g): wait(); return g\n"
        "x = torch.ones(3, requires_grad=True)\ny = F.apply(x).sum()\nstart(y.backward)\n"
        "z = F.apply(x * 2).sum()\nready()\nz.backward()",
        "torch",
    ),
    Scene(
        "nested backward passes",
        "import torch\nx = torch.ones(3, requires_grad=True)\n"
        "def again(n):\n y = (x * 2).sum()\n y.register_hook(lambda g: again(n - 1) if n else wait())\n"
        " y.backward()\nready()\nagain(6)",
        "torch",
    ),
    Scene(
        "module hooks and saved tensors",
        "import torch\nm = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())\n"
        "m[1].register_full_backward_hook(wait)\nready()\nm(torch.ones(2, 3)).sum().backward()",
        "torch",
    ),
    Scene(
        "forked loader",
        "import torch\nclass D(torch.utils.data.Dataset):\n"
        " def __len__(self): return 9\n def __getitem__(self, i): time.sleep(3600)\n"
        "l = torch.utils.data.DataLoader(D(), num_workers=2)\nready()\nnext(iter(l))",
        "torch",
    ),
    Scene(
        "loader with pinning and idle workers",
        "import torch\nd = torch.utils.data.TensorDataset(torch.ones(8, 3))\n"
        "i = iter(torch.utils.data.DataLoader(d, num_workers=2, persistent_workers=True))\nnext(i)\n"
        "ready()\nwait()",
        "torch",
    ),
    *(
        Scene(
            f"gloo, {name}",
            "import torch, torch.distributed as d, datetime, tempfile\n"
            "store = tempfile.mktemp()\nrank = 0 if (child := os.fork()) else 1\n"
            "d.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=2,\n"
            " timeout=datetime.timedelta(hours=1))\nx = torch.ones(4)\nd.all_reduce(x)\n"
            f"if rank: time.sleep(3600)\nready()\n{call}",
            "torch",
        )
        for name, call in (
            ("all_reduce", "d.all_reduce(x)"),
            ("barrier", "d.barrier()"),
            ("monitored_barrier", "d.monitored_barrier()"),
            ("recv", "d.recv(x, 1)"),
            ("all_gather", "d.all_gather([x, x], x)"),
            ("wait of a handle", "d.broadcast(x, 1, async_op=True).wait()"),
        )
    ),
    Scene(
        "store of a job",
        "import torch.distributed as d, datetime\n"
        "s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False,\n"
        " timeout=datetime.timedelta(hours=1))\nready()\ns.get('x')",
        "torch",
    ),
    Scene(
        "scripted function",
        "import torch\n@torch.jit.script\ndef f(x):\n for _ in range(2): x = x + 1\n return x\n"
        "f(torch.ones(3))\nready()\nwait()",
        "torch",
    ),
)
