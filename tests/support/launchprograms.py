"""Small programs that say what they find around themselves, and what is done to them, for
``stage.py`` to start.

``say`` adds a line to the program's trail. Nothing in it is the same by chance: relations are said,
not PIDs.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

EVERYWHERE = (
    "leader",
    "job",
    "member",
    "terminal",
    "terminal-leader",
    "terminal-member",
    "dashboard",
)
WITHOUT_TERMINAL = ("leader", "job", "member")
ON_TERMINAL = ("terminal", "terminal-leader", "terminal-member", "dashboard")
UNDER_SHELL = ("terminal", "dashboard")
STOPPED_BY_ALL = ("leader", "job", "member", "terminal", "terminal-leader", "dashboard")
_OF_JOBS = ("SIGTSTP", "SIGPIPE")
ONCE = ("job",)
"""For what does not depend on groups or terminals."""

PRELUDE = """
import fcntl, os, signal, struct, sys, termios, time
def say(*words):
    with open(os.environ["TRAIL"], "a") as trail:
        print(*words, file=trail)
def status(*names):
    for line in open("/proc/self/status"):
        if line.split(":")[0] in names:
            say(line.strip())
def attempt(work, *words):
    try:
        return work(*words)
    except OSError as error:
        return type(error).__name__, error.errno
def until_continued():
    signal.signal(signal.SIGCONT, lambda *_: going_on.append(True))
    going_on, end = [], time.monotonic() + 20
    say("ready")
    while not going_on and time.monotonic() < end:
        time.sleep(0.01)
"""


class Act(NamedTuple):
    """What is done to a program: ``type KEYS``, ``signal NAME`` to its process, ``group NAME`` to
    its group.
    """

    after: str
    """Text in the trail."""
    what: str


@dataclass(frozen=True)
class SmallProgram:
    """One program, and what happens to it.

    ``before`` is called in the process that becomes it, as its caller would.
    """

    code: str
    ways: tuple[str, ...] = EVERYWHERE
    acts: tuple[Act, ...] = ()
    before: Callable[[], object] = lambda: None
    shell: bool = False
    argv: tuple[str, ...] = ()
    differs: str = ""
    """The row of docs/launching.md that says why it comes to something else below profd.

    Empty if it does not.
    """

    def words(self) -> list[str]:
        if self.argv:
            return list(self.argv)
        if self.shell:
            return ["sh", "-c", self.code, "sh"]
        return [sys.executable, "-S", "-E", "-c", PRELUDE + self.code]


PROGRAMS: dict[str, SmallProgram] = {}


def add(
    name: str,
    code: str,
    *acts: tuple[str, str],
    ways: tuple[str, ...] = EVERYWHERE,
    before: Callable[[], object] = lambda: None,
    shell: bool = False,
    differs: str = "",
) -> None:
    assert name not in PROGRAMS
    PROGRAMS[name] = SmallProgram(
        code, ways, tuple(Act(*act) for act in acts), before, shell, differs=differs
    )


def run(
    name: str, *argv: str, before: Callable[[], object] = lambda: None, ways: tuple[str, ...] = ONCE
) -> None:
    PROGRAMS[name] = SmallProgram("", ways, (), before, argv=argv)


def in_turn(*works: Callable[[], object]) -> Callable[[], object]:
    return lambda: [work() for work in works]


def lower(limit: int) -> None:
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(
        limit, ((1 << 30) - 1 if soft == resource.RLIM_INFINITY else max(soft - 1, 0), hard)
    )


def executable(text: str, name: str = "script") -> None:
    Path(name).write_text(text)
    Path(name).chmod(0o755)


def take_lock() -> None:
    import fcntl

    fd = os.open("lock", os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.dup2(fd, 30)
    os.close(fd)


def make_pipe(read_fd: int, write_fd: int) -> None:
    for fd, wanted in zip(os.pipe(), (read_fd, write_fd), strict=True):
        os.dup2(fd, wanted)
        os.close(fd)


def fork_child() -> None:
    if os.fork() == 0:
        os._exit(3)


# What is found: place, terminal, signals, descriptors, limits.
add("place", "say(os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())")
add(
    "place-shell",
    'set -- $(cut -d" " -f1,5,6 /proc/$$/stat); [ $1 = $2 ]; a=$?; [ $1 = $3 ]; echo $a $? >> '
    "$TRAIL",
    shell=True,
)
add(
    "alone-in-group",
    """
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and attempt(os.getpgid, int(pid)) == os.getpgrp()]
say(len(others))
""",
    ways=("leader", "job", "terminal", "terminal-leader", "dashboard"),
)
add(
    "alone-in-session",
    """
say(len([pid for pid in os.listdir("/proc") if pid.isdigit() and attempt(os.getsid, int(pid)) == os.getsid(0)]))
""",
    ways=("leader", "terminal-leader"),
)
add("setsid", "say(attempt(os.setsid) is None)")
add("setpgid", "say(attempt(os.setpgid, 0, 0))")
add(
    "terminal",
    """
for fd in (0, 1, 2):
    say(os.isatty(fd), attempt(os.tcgetpgrp, fd) == os.getpgrp())
fd = attempt(os.open, "/dev/tty", os.O_RDWR)
say(fd if isinstance(fd, tuple) else os.tcgetpgrp(fd) == os.getpgrp())
""",
)
add(
    "terminal-session",
    """
say(attempt(lambda: struct.unpack("i", fcntl.ioctl(0, termios.TIOCGSID, bytes(4)))[0]) == os.getsid(0))
""",
)
add(
    "terminal-number",
    "say(os.stat('/proc/self/fd/0').st_rdev == int(open('/proc/self/stat').read().split()[6]))",
    ways=ON_TERMINAL,
)
add("terminal-size", "say(os.get_terminal_size(0), os.get_terminal_size(1))", ways=ON_TERMINAL)
add("terminal-modes", "say(termios.tcgetattr(0)[:4])", ways=ON_TERMINAL)
add(
    "terminal-survives-its-streams",
    """
for fd in (0, 1, 2):
    os.close(fd)
os.open(os.devnull, os.O_RDWR), os.dup(0), os.dup(0)
time.sleep(0.05)
fd = attempt(os.open, "/dev/tty", os.O_RDWR)
say("refused" if isinstance(fd, tuple) else os.isatty(fd))
""",
    ways=("terminal", "terminal-member", "dashboard"),
)
add(
    "terminal-given-up",
    "say(attempt(lambda: fcntl.ioctl(0, termios.TIOCNOTTY)), attempt(os.open, '/dev/tty', 2))",
    ways=("terminal", "terminal-member", "dashboard"),
)
add(
    "terminal-of-a-new-session",
    """
if os.fork() == 0:
    os.setsid()
    say(attempt(os.open, '/dev/tty', 2), attempt(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) != 0)
    os._exit(0)
os.wait()
""",
    ways=ON_TERMINAL,
)
add("signals", "status('SigBlk', 'SigIgn', 'SigCgt', 'ShdPnd', 'SigPnd')")
add(
    "signals-shell",
    "while read -r name value; do case $name in Sig[BICP]*|Shd*) echo $name $value >> $TRAIL; "
    "esac; done < /proc/$$/status",
    shell=True,
)
add("descriptors", "say(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1])")
add("descriptors-shell", "for fd in /proc/$$/fd/*; do echo ${fd##*/} >> $TRAIL; done", shell=True)
add("same-streams", "say([os.path.sameopenfile(a, b) for a, b in ((0, 1), (1, 2))])")
add("stream-flags", "say([fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000 for fd in (0, 1, 2)])")
add("stream-inheritance", "say([fcntl.fcntl(fd, fcntl.F_GETFD) for fd in (0, 1, 2)])")
add(
    "children",
    "say(attempt(os.waitpid, -1, os.WNOHANG), open('/proc/self/task/%d/children' % "
    "os.getpid()).read())",
)
add("threads", "say(len(os.listdir('/proc/self/task')))")
add(
    "parent-lives",
    "say(os.getppid() > 0, open('/proc/%d/stat' % os.getppid()).read().split(')')[1].split()[0] "
    "in 'RS')",
)
add(
    "parent-in-session",
    "say(os.getsid(os.getppid()) == os.getsid(0))",
    ways=("job", "member", "terminal", "terminal-member", "dashboard"),
)
add(
    "parent-in-other-group",
    "say(os.getpgid(os.getppid()) != os.getpgrp())",
    ways=("job", "terminal", "dashboard"),
)
add(
    "orphans-parent-is-not-profd",
    """
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.read(read, 1)
        say(open('/proc/%d/comm' % os.getppid()).read())
    os._exit(0)
os.wait()
os.write(write, b"x")
""",
    ways=("leader", "job", "terminal", "dashboard"),
)
for name, code in {
    "cwd": "say(os.path.samefile(os.getcwd(), os.path.dirname(os.environ['TRAIL'])))",
    "nice": "say(os.nice(0))",
    "scheduler": "say(os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)))",
    "autogroup": "say(attempt(lambda: open('/proc/self/autogroup').read().split()[-1]))",
    "oom": "say(open('/proc/self/oom_score_adj').read().strip())",
    "dumpable": "say(open('/proc/self/coredump_filter').read().strip(), "
    "os.stat('/proc/self').st_uid == os.getuid())",
    "identity": "say(os.getresuid(), os.getresgid(), os.getgroups())",
    "capabilities": "status('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', "
    "'Seccomp')",
    "limits": "say([line for line in open('/proc/self/limits') if 'pending' not in line])",
    "name": "say(open('/proc/self/comm').read().strip(), "
    "len(open('/proc/self/cmdline').read().split('\\0')))",
    "cgroup": "say(open('/proc/self/cgroup').read().split())",
    "namespaces": "say(sorted(os.readlink('/proc/self/ns/' + name) for name in "
    "os.listdir('/proc/self/ns')))",
    "personality": "say(attempt(lambda: open('/proc/self/personality').read().strip()))",
    "timerslack": "say(open('/proc/self/timerslack_ns').read().strip())",
    "root": "say(os.readlink('/proc/self/root'))",
    "death-signal": "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, "
    "ctypes.byref(n)); say(n.value)",
    "subreaper": "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(37, "
    "ctypes.byref(n)); say(n.value)",
    "io-priority": "import ctypes; say(ctypes.CDLL(None).syscall(252 if os.uname().machine == "
    "'x86_64' else 31, 1, 0))",
    "timers": "say(signal.getitimer(signal.ITIMER_REAL), signal.alarm(0))",
    "environment": "say(sorted(x for x in open('/proc/self/environ').read().split('\\0') if "
    "'TRAIL=' not in x))",
    "locale": "say(os.environ.get('LC_CTYPE'), os.environ.get('LC_ALL'))",
}.items():
    add(name, code, ways=ONCE)

# What the caller has set before.
for mask in (0o000, 0o022, 0o077, 0o777):
    add(
        f"umask-{mask:03o}",
        "say(oct(os.umask(0)))",
        ways=ONCE,
        before=partial(os.umask, mask),
    )
for number in (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGTTOU,
    signal.SIGCONT,
):
    add(
        f"ignored-{number.name}",
        "status('SigIgn', 'SigBlk')",
        ways=("job", "terminal", "dashboard"),
        before=partial(signal.signal, number, signal.SIG_IGN),
    )
for number in (
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGTSTP,
    signal.SIGRTMIN,
):
    add(
        f"blocked-{number.name}",
        "status('SigIgn', 'SigBlk')",
        ways=("job", "terminal", "dashboard"),
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, {number}),
    )
for limit in ("NOFILE", "CORE", "FSIZE", "NPROC"):
    add(
        f"limit-{limit.lower()}",
        f"import resource; say(resource.getrlimit(resource.RLIMIT_{limit}))",
        ways=ONCE,
        before=partial(lower, getattr(resource, f"RLIMIT_{limit}")),
    )
for fd in (0, 1, 2):
    add(
        f"closed-{fd}",
        "say([fd for fd in (0, 1, 2) if not isinstance(attempt(os.fstat, fd), tuple)])",
        ways=("job", "terminal"),
        before=partial(os.close, fd),
    )
add(
    "closed-all",
    "for fd in /proc/$$/fd/*; do echo ${fd##*/} >> $TRAIL; done",
    ways=("leader", "job"),
    before=lambda: os.closerange(0, 3),
    shell=True,
)
add(
    "inherited",
    "say([fd for fd in range(20, 24) if not isinstance(attempt(os.fstat, fd), tuple)])",
    ways=ONCE,
    before=lambda: [os.dup2(1, fd, inheritable=fd % 2 == 0) for fd in range(20, 24)],
)
add(
    "deleted-folder",
    "say(attempt(os.getcwd))",
    ways=ONCE,
    before=in_turn(Path("gone").mkdir, partial(os.chdir, "gone"), Path("../gone").rmdir),
)
add("niced", "say(os.nice(0))", ways=ONCE, before=lambda: os.nice(3))
add(
    "pinned",
    "say(os.sched_getaffinity(0))",
    ways=ONCE,
    before=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
)


# How it ends.
for exit_code in (0, 1, 2, 74, 126, 127, 137, 255):
    add(f"exit-{exit_code}", f"exit {exit_code}", ways=("job", "dashboard"), shell=True)
for number in (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGABRT,
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGXFSZ,
    signal.SIGRTMAX,
):
    add(
        f"dies-of-{number.name}",
        f"attempt(signal.signal, {int(number)}, 0); os.kill(os.getpid(), {int(number)})",
        ways=("job", "dashboard"),
        before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
add("uncaught-interrupt", "raise KeyboardInterrupt")
add("traceback", "raise ValueError('no')", ways=("job", "dashboard"))
add("sys-exit-text", "sys.exit('no')", ways=ONCE)
add(
    "aborts",
    "os.abort()",
    ways=ONCE,
    before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
)
add(
    "ends-from-a-thread",
    "import threading; threading.Thread(target=lambda: os._exit(5)).start(); time.sleep(9)",
    ways=ONCE,
)
add("execs", "say('before'); os.execvp('sh', ['sh', '-c', 'echo after >> $TRAIL; exit 4'])")
run("not-there", "./absent")
run("not-on-path", "no-such-command-anywhere")
run("empty-name", "")
run("a-folder", "/")
run("through-a-file", "/etc/passwd/x")
run("not-executable", "/etc/passwd")
run("no-interpreter", "./script", before=lambda: executable("#!/no/such/interpreter\n"))
run(
    "shebang",
    "./script",
    "a b",
    "",
    before=lambda: executable('#!/bin/sh\necho "$0" "$#" "$1" >> $TRAIL; exit 6\n'),
)
run(
    "relative-name",
    "sub/../script",
    before=in_turn(Path("sub").mkdir, partial(executable, "#!/bin/sh\necho $0 >> $TRAIL\n")),
)
run("empty-words", "sh", "-c", 'echo "$#" "[$1]" "[$2]" >> $TRAIL', "sh", "", " ")
run(
    "option-like-words",
    "sh",
    "-c",
    'echo "$@" >> $TRAIL',
    "--",
    "--headless",
    "-o",
    "--",
    "--quiet",
)
run(
    "odd-bytes",
    "sh",
    "-c",
    'printf %s "$1" | od -c >> $TRAIL',
    "sh",
    os.fsdecode(b"\xff\xfe\n\x01"),
)
run("long-word", "sh", "-c", "echo ${#1} >> $TRAIL", "sh", "x" * 100_000)
run("many-words", "sh", "-c", "echo $# >> $TRAIL", "sh", *map(str, range(5000)))
run("too-many-words", "sh", "-c", "true", "sh", *["x" * 100_000] * 100)
run(
    "found-on-path",
    "tool",
    before=in_turn(
        partial(executable, "#!/bin/sh\nexit 8\n", "tool"),
        lambda: os.environ.update(PATH=".:" + os.environ["PATH"]),
    ),
)
run("no-path", "sh", "-c", "exit 9", before=lambda: os.environ.pop("PATH"))
# Signals from outside: to the process alone, and to its group with a child in it.
LISTEN = """
import threading
def heard(number, frame):
    say("got", signal.Signals(number).name)
NAMES = {names}
for name in NAMES:
    signal.signal(getattr(signal, name), heard)
def ready():
    say("ready")
    end = time.monotonic() + 20
    while "got" not in open(os.environ["TRAIL"]).read() and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(0.08)  # a second one would be heard, too
"""
for name in (
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGWINCH",
    "SIGCONT",
    "SIGRTMIN",
    "SIGPIPE",
    "SIGTSTP",
):
    add(
        f"hears-{name}",
        LISTEN.format(names=[name]) + "ready(); sys.exit(5)",
        ("ready", f"signal {name}"),
        ways=("leader", "job") if name in _OF_JOBS else ("job", "dashboard"),
    )
for name in ("SIGTERM", "SIGHUP", "SIGCONT"):
    add(
        f"group-hears-{name}",
        LISTEN.format(names=[name])
        + """
child = os.fork()
if child == 0:
    ready(); os._exit(0)
while os.waitpid(child, 0)[0] != child: pass
time.sleep(0.05)
sys.exit(6)
""",
        ("ready", f"group {name}"),
        ways=("leader", "job", "terminal", "terminal-leader", "dashboard"),
    )
for name in ("SIGTERM", "SIGHUP", "SIGKILL"):
    add(
        f"group-dies-of-{name}",
        f"""
signal.signal({int(getattr(signal, name))}, 0) if {name!r} != "SIGKILL" else 0
child = os.fork()
if child == 0: say("ready")
while True: time.sleep(1)
""",
        ("ready", f"group {name}"),
        ways=("leader", "job", "terminal", "terminal-leader"),
    )
for name in ("SIGTERM", "SIGINT", "SIGQUIT"):
    add(
        f"dies-when-sent-{name}",
        f"signal.signal(signal.{name}, 0); say('ready'); time.sleep(20)",
        ("ready", f"signal {name}"),
        ways=("leader", "job", "member", "terminal", "dashboard"),
        before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
add(
    "ignores-what-it-is-sent",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready'); time.sleep(0.3); say('on')",
    ("ready", "signal SIGTERM"),
    ways=("leader", "job", "terminal", "dashboard"),
)
add(
    "signals-in-order",
    LISTEN.format(names=["SIGUSR1", "SIGUSR2"]) + "ready(); time.sleep(0.2); sys.exit(1)",
    ("ready", "signal SIGUSR1"),
    ("got SIGUSR1", "signal SIGUSR2"),
    ways=("leader", "job", "terminal", "dashboard"),
)
add(
    "signals-its-group",
    LISTEN.format(names=["SIGTERM"]) + "os.killpg(0, signal.SIGTERM); ready(); sys.exit(2)",
    ways=("leader", "job", "terminal", "terminal-leader", "dashboard"),
)

# Stops, and going on.
for name in ("SIGSTOP", "SIGTSTP", "SIGTTOU"):
    add(
        f"stops-itself-by-{name}",
        f"say('one'); os.kill(os.getpid(), signal.{name}); time.sleep(0.1); say('two'); sys.exit(3)",
        ways=STOPPED_BY_ALL if name == "SIGSTOP" else ("job", "terminal", "dashboard"),
    )
    add(
        f"stops-its-group-by-{name}",
        f"say('one'); os.killpg(0, signal.{name}); time.sleep(0.1); say('two'); sys.exit(3)",
        ways=("job", "terminal", "dashboard"),
    )
add(
    "stops-twice",
    "for n in (1, 2): os.kill(os.getpid(), signal.SIGSTOP); say(n)",
    ways=("job", "terminal", "dashboard"),
)
add(
    "stopped-job-from-outside",
    "until_continued(); say('done')",
    ("ready", "group SIGSTOP"),
    ways=("job", "terminal"),
)
add(
    "asked-to-stop",
    "until_continued(); say('done')",
    ("ready", "group SIGTSTP"),
    ways=("job", "terminal", "dashboard"),
)
add(
    "continue-handler",
    """
signal.signal(signal.SIGCONT, lambda *_: say("on"))
say("one"); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(0.1); say("two")
""",
    ways=("job", "terminal", "dashboard"),
)
add(
    "foreground-after-a-stop",
    """
os.kill(os.getpid(), signal.SIGTSTP); time.sleep(0.1)
say(os.tcgetpgrp(0) == os.getpgrp())
""",
    ways=UNDER_SHELL,
)

# Keys.
add("ctrl-c", "say('ready'); time.sleep(20)", ("ready", "type \\x03"), ways=ON_TERMINAL)
add(
    "ctrl-c-default",
    "signal.signal(2, 0); say('ready'); time.sleep(20)",
    ("ready", "type \\x03"),
    ways=ON_TERMINAL,
)
add(
    "ctrl-c-heard-once",
    LISTEN.format(names=["SIGINT"]) + "ready(); sys.exit(4)",
    ("ready", "type \\x03"),
    ways=ON_TERMINAL,
)
add(
    "ctrl-c-reaches-children",
    LISTEN.format(names=["SIGINT"])
    + """
code = "import signal, time; signal.signal(2, 0); print(1, flush=True); time.sleep(20)"
import subprocess; child = subprocess.Popen([sys.executable, "-S", "-E", "-c", code], stdout=subprocess.PIPE)
child.stdout.readline(); ready(); say(child.wait())
""",
    ("ready", "type \\x03"),
    ways=ON_TERMINAL,
)
add(
    "ctrl-c-shell",
    "echo ready >> $TRAIL; sleep 20; echo after >> $TRAIL",
    ("ready", "type \\x03"),
    ways=ON_TERMINAL,
    shell=True,
)
add(
    "ctrl-c-trapped",
    "sleep 20 & trap 'echo trapped >> $TRAIL; kill $!; exit 9' INT; echo ready >> $TRAIL; wait",
    ("ready", "type \\x03"),
    ways=ON_TERMINAL,
    shell=True,
)
add(
    "ctrl-backslash",
    "signal.signal(3, 0); say('ready'); time.sleep(20)",
    ("ready", "type \\x1c"),
    ways=ON_TERMINAL,
    before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
)
add("ctrl-z", "until_continued(); say('on')", ("ready", "type \\x1a"), ways=UNDER_SHELL)
add(
    "ctrl-z-without-shell",
    "say('ready'); time.sleep(0.3); say('on')",
    ("ready", "type \\x1a"),
    ways=("terminal-leader",),
)
add(
    "ctrl-z-heard",
    LISTEN.format(names=["SIGTSTP"]) + "ready()",
    ("ready", "type \\x1a"),
    ways=ON_TERMINAL,
)
add(
    "reads-a-line",
    "say('ready'); say(repr(sys.stdin.readline()))",
    ("ready", "type hello\\n"),
    ways=ON_TERMINAL,
)
add(
    "reads-its-end",
    "say('ready'); say(repr(sys.stdin.read()))",
    ("ready", "type \\x04"),
    ways=ON_TERMINAL,
)
add(
    "reads-a-password",
    """
fd = os.open("/dev/tty", os.O_RDWR)
modes = termios.tcgetattr(fd); modes[3] &= ~termios.ECHO; termios.tcsetattr(fd, termios.TCSAFLUSH, modes)
say("ready"); say(os.read(fd, 100))
""",
    ("ready", "type secret\\n"),
    ways=ON_TERMINAL,
)
add(
    "raw-keys",
    """
import tty
kept = termios.tcgetattr(0); tty.setraw(0)
say("ready"); say(os.read(0, 1)); termios.tcsetattr(0, termios.TCSADRAIN, kept)
""",
    ("ready", "type \\x03"),
    ways=ON_TERMINAL,
)
add(
    "background-read",
    """
if os.fork() == 0:
    os.setpgid(0, 0); say("asks"); os.read(0, 1); os._exit(0)
pid, status = os.waitpid(-1, os.WUNTRACED)
say(os.WIFSTOPPED(status), os.WSTOPSIG(status))
os.kill(pid, signal.SIGKILL); os.wait()
""",
    ways=ON_TERMINAL,
)
add(
    "job-control",
    'set -m; sh -c "kill -STOP \\$\\$; echo inner >> $TRAIL" & '
    "until grep -q 'State:.T' /proc/$!/status; do sleep 0.02; done; "
    "fg > /dev/null; echo done >> $TRAIL",
    ways=ON_TERMINAL,
    shell=True,
)
add(
    "gives-the-terminal-to-a-child",
    """
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN); os.tcsetpgrp(0, os.getpid())
    say(os.tcgetpgrp(0) == os.getpid()); os._exit(0)
os.wait(); signal.signal(signal.SIGTTOU, signal.SIG_IGN); os.tcsetpgrp(0, os.getpgrp())
say(os.tcgetpgrp(0) == os.getpgrp())
""",
    ways=ON_TERMINAL,
)
add(
    "tostop",
    """
modes = termios.tcgetattr(1); modes[3] |= termios.TOSTOP; termios.tcsetattr(1, termios.TCSANOW, modes)
os.write(1, b"x"); say("written"); modes[3] &= ~termios.TOSTOP; termios.tcsetattr(1, termios.TCSANOW, modes)
""",
    ways=ON_TERMINAL,
)

# Children, and what is left behind.
LEFT = "import time, os; time.sleep(0.3); open(os.environ['TRAIL'], 'a').write('left behind\\n')"
for name, options in {
    "quiet": "pass_fds=[9], stdin=-3, stdout=-3, stderr=-3",
    "on-the-streams": "pass_fds=[9]",
    "in-a-group": "pass_fds=[9], preexec_fn=os.setpgrp",
    "in-a-session": "pass_fds=[9], start_new_session=True, stdin=-3, stdout=-3, stderr=-3",
}.items():
    add(
        f"leaves-a-child-{name}",
        f"import subprocess; subprocess.Popen([sys.executable, '-S', '-E', '-c', {LEFT!r}], "
        f"{options})",
    )
add("leaves-a-job", "(sleep 0.3; echo left behind >> $TRAIL) & exit 2", shell=True)
add(
    "leaves-a-writer",
    "(sleep 0.2; echo shown; echo wrote $? >> $TRAIL) & exit 2",
    ways=("job", "member", "terminal", "dashboard"),
    shell=True,
)
add(
    "leaves-a-reader",
    # a terminal gives bytes to those in the foreground, and an error to all others that are orphaned
    """
if os.fork() == 0:
    while attempt(os.tcgetpgrp, 0) == os.getpgrp(): time.sleep(0.01)
    say(attempt(os.read, 0, 1))
    os._exit(0)
""",
    ways=("job", "terminal", "dashboard"),
)
add(
    "leaves-nohup",
    # until nohup has ignored the signal, the end of a terminal's leader would hang it up, in any case
    "nohup sh -c 'echo there >> $TRAIL; sleep 0.2; echo left >> $TRAIL' > /dev/null 2>&1 & "
    "until grep -q there $TRAIL; do sleep 0.02; done; exit 3",
    shell=True,
)
add(
    # before it leads a session, the end of a terminal's leader would hang it up, in any case
    "becomes-a-daemon",
    """
gone, leads = os.pipe()
if os.fork():
    os.close(leads)
    os.read(gone, 1)
    os._exit(0)
os.setsid()
os.close(leads)
if os.fork(): os._exit(0)
time.sleep(0.1); say(os.getppid() != 0, os.getsid(0) != os.getpid())
""",
)
add(
    "kills-its-workers",
    "sleep 30 & sleep 0.1; trap '' TERM; kill -- -$$; wait; echo done >> $TRAIL; exit 4",
    shell=True,
    ways=("leader", "job", "terminal", "terminal-leader", "dashboard"),
)
add(
    "kill-0",
    "trap 'echo heard >> $TRAIL' TERM; sleep 30 & sleep 0.1; kill 0; wait; exit 5",
    shell=True,
    ways=("leader", "job", "terminal", "terminal-leader", "dashboard"),
)
add("waits-for-all", "for n in 1 2 3; do (exit $n) & done; wait; echo $? >> $TRAIL", shell=True)
add(
    "pipeline",
    "echo a b | tr a-z A-Z | cat >> $TRAIL; exit 1",
    shell=True,
    ways=("job", "dashboard"),
)
add(
    "broken-pipe",
    "yes | head -n 1 > /dev/null; sh -c 'yes 2> /dev/null; echo $? >> $TRAIL' | true",
    shell=True,
    ways=("job",),
)
add(
    "closes-its-lock",
    """
import fcntl
fd = os.open("lock", os.O_RDWR | os.O_CREAT); fcntl.flock(fd, fcntl.LOCK_EX)
os.set_inheritable(fd, True)
other = os.open("lock", os.O_RDWR)
os.close(fd); say(attempt(fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB))
""",
    ways=ONCE,
)
add(
    "callers-lock",
    "os.close(30); say(attempt(fcntl.flock, os.open('lock', 2), fcntl.LOCK_EX | fcntl.LOCK_NB))",
    ways=("leader", "job", "member", "dashboard"),
    before=lambda: take_lock(),
)
add(
    "callers-pipe",
    "os.close(31); say('end' if os.read(30, 1) == b'' else 'more')",
    ways=("leader", "job", "dashboard"),
    before=lambda: make_pipe(30, 31),
)
add(
    "stdout-ends",
    "os.dup2(os.open(os.devnull, 2), 1); say(os.read(30, 1))",
    ways=("leader", "job"),
    before=lambda: make_pipe(30, 1),
)
add(
    "stdin-ends",
    "os.close(0); say(attempt(os.write, 31, b'x'))",
    ways=("leader", "job"),
    before=lambda: make_pipe(0, 31),
)
add(
    "stderr-ends",
    "os.dup2(os.open(os.devnull, 2), 2); say(os.read(30, 1))",
    ways=("leader", "job"),
    before=lambda: make_pipe(30, 2),
)


# What differs, each for a reason.
add(
    "parent",
    "say(open('/proc/%d/comm' % os.getppid()).read() == open('/proc/%d/comm' % os.getpid()).read())",
    ways=("dashboard",),
    before=lambda: Path("/proc/self/comm").write_text("python"),
    differs="parent",
)
add(
    "children-of-before",
    "say(attempt(os.wait)[1])",
    ways=ONCE,
    before=fork_child,
    differs="children of before",
)
add(
    "alarm-of-before",
    "say(signal.alarm(0) > 0)",
    ways=ONCE,
    before=lambda: signal.alarm(100),
    differs="timers of before",
)
add(
    "killed-alone",
    "say('ready'); time.sleep(2); say('lives')",
    ("ready", "signal SIGKILL"),
    ways=("leader", "job", "dashboard"),
    differs="kill of profd alone",
)
add(
    "stopped-alone",
    "until_continued(); say('done')",
    ("ready", "signal SIGSTOP"),
    ways=("job", "dashboard"),
)
