-- The run file, version 1. Times are nanoseconds of the wall clock (see clock.py), shares are 0 to 1.
-- History: 1 = first.

-- One value a name: id, name, command, host, versions, state, times; see rows.RunInfo.
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- A process is its PID and its start time in clock ticks since boot: a PID alone is used again.
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    parent INTEGER REFERENCES process,
    command TEXT NOT NULL,            -- JSON list of words, secrets masked
    role TEXT NOT NULL,               -- main, worker, helper, launcher
    rank INTEGER,
    ordinal INTEGER,                  -- which of the workers of its parent, from 1
    python TEXT,                      -- "3.11.7"; NULL: not Python, or not known
    seen_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    exit_code INTEGER,                -- NULL: not known, or ended by a signal
    exit_signal INTEGER,
    UNIQUE (pid, start_ticks)
);

-- The place of a rank in its job, as its launcher wrote it into its environment.
CREATE TABLE placement (
    process INTEGER PRIMARY KEY REFERENCES process,
    local_rank INTEGER,               -- on its node, from 0; NULL, as the others: the launcher does not say
    node INTEGER,                     -- which of the job's, from 0
    world_size INTEGER,               -- ranks of the job
    job TEXT                          -- what its launcher tells all ranks of the job alike: an id, or ADDRESS:PORT
);

-- is_main: it leads its process. That is its main thread, or the one that trains while that only waits for it.
CREATE TABLE thread (
    id INTEGER PRIMARY KEY,
    process INTEGER NOT NULL REFERENCES process,
    os_tid INTEGER NOT NULL,
    name TEXT NOT NULL,
    is_main INTEGER NOT NULL,
    UNIQUE (process, os_tid, name, is_main)
);

-- A frame is a function at a line. source is that line's text when it was first seen, NULL if unreadable.
CREATE TABLE frame (
    id INTEGER PRIMARY KEY,
    function TEXT NOT NULL,
    file TEXT NOT NULL,               -- full path, as the interpreter has it
    module_path TEXT NOT NULL,        -- from the outermost package down: torch/nn/modules/module.py
    line INTEGER NOT NULL,
    is_library INTEGER NOT NULL,      -- of the standard library or an installed package
    source TEXT
);
-- Without the file, whose text would stand here once more for each of its lines.
CREATE INDEX frame_by_function ON frame (function, line);

-- The frames whose line stands within `with torch.no_grad():`, or the like.
CREATE TABLE frame_without_gradients (id INTEGER PRIMARY KEY REFERENCES frame);

-- Stacks as a prefix tree: a row is its frame called from the stack `parent` (0: nothing).
CREATE TABLE stack (
    id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    frame INTEGER NOT NULL REFERENCES frame,
    UNIQUE (parent, frame)
);

-- A stretch of time in which one py-spy recording has read one process, cut against its neighbors in the chain. What
-- py-spy cost stands at the first stretch of each recording.
CREATE TABLE recording (
    id INTEGER PRIMARY KEY,
    process INTEGER NOT NULL REFERENCES process,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    rate_hz INTEGER NOT NULL,
    samples INTEGER NOT NULL,         -- stacks read of all threads, kept or torn
    torn INTEGER NOT NULL,            -- of these, dropped as impossible
    errors INTEGER NOT NULL,          -- reads that failed
    clock_error_ns INTEGER NOT NULL,  -- half the width of the bracket that its times lie in
    cpu_ns INTEGER NOT NULL           -- what the recording itself cost
);
CREATE INDEX recording_by_time ON recording (start_ns);

-- Nothing was read of a process that was to be sampled without a gap: no interval lies here. reason is one of: stopped,
-- frozen, suspended, profd stopped, py-spy could not read, exec.
CREATE TABLE gap (
    id INTEGER PRIMARY KEY,
    process INTEGER NOT NULL REFERENCES process,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    text TEXT NOT NULL                -- what is known of it, such as py-spy's words
);

-- A thread stood in a stack from start_ns for duration_ns, and `samples` samples of it were taken there.
CREATE TABLE interval (
    start_ns INTEGER NOT NULL,
    thread INTEGER NOT NULL REFERENCES thread,
    duration_ns INTEGER NOT NULL,
    stack INTEGER NOT NULL REFERENCES stack,
    samples INTEGER NOT NULL,
    PRIMARY KEY (start_ns, thread)
) WITHOUT ROWID;

-- A GPU that the run used, or a MIG instance of one.
CREATE TABLE device (
    name TEXT PRIMARY KEY,            -- gpu0, gpu0-mig1: as in series.device
    number INTEGER NOT NULL,          -- of the GPU, as NVML and nvidia-smi count
    model TEXT NOT NULL,
    uuid TEXT NOT NULL,
    memory_bytes INTEGER              -- NULL: the driver does not tell
) WITHOUT ROWID;

-- A series of numbers: of a process, of a thread of it, of a device (or of a process on it), or of the host (all NULL).
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,               -- with its unit: rss_bytes, cpu_cores
    process INTEGER REFERENCES process,
    os_tid INTEGER,
    device TEXT
);
CREATE INDEX series_by_name ON series (process, name);
CREATE TABLE point (
    series INTEGER NOT NULL REFERENCES series,
    at_ns INTEGER NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (series, at_ns)
) WITHOUT ROWID;

-- Sums of `interval` by the minute since the run's start in which they start, so that long runs are read quickly. They
-- are written a little later than the intervals: see summed_process. What held is told from points: docs/file-format.md.
CREATE TABLE stack_minute (
    thread INTEGER NOT NULL REFERENCES thread,
    minute INTEGER NOT NULL,
    stack INTEGER NOT NULL REFERENCES stack,
    samples INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,        -- when the last of the intervals ends
    known_ns INTEGER NOT NULL,        -- the part of duration_ns for which the utilization of the process's GPUs is known
    busy_ns REAL NOT NULL,            -- that part, weighted with the utilization
    idle_samples INTEGER NOT NULL,    -- while the GPUs were nearly idle: utilized below 5 %
    idle_ns INTEGER NOT NULL,
    cpu_samples INTEGER NOT NULL,     -- while the thread was on the CPU
    cpu_ns INTEGER NOT NULL,
    both_samples INTEGER NOT NULL,    -- while both held
    both_ns INTEGER NOT NULL,
    PRIMARY KEY (thread, minute, stack)
) WITHOUT ROWID;

-- The same by hours, of all the minutes of each hour that lies whole in what is summed of a process.
CREATE TABLE stack_hour (
    thread INTEGER NOT NULL REFERENCES thread,
    hour INTEGER NOT NULL,
    stack INTEGER NOT NULL REFERENCES stack,
    samples INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    known_ns INTEGER NOT NULL,
    busy_ns REAL NOT NULL,
    idle_samples INTEGER NOT NULL,
    idle_ns INTEGER NOT NULL,
    cpu_samples INTEGER NOT NULL,
    cpu_ns INTEGER NOT NULL,
    both_samples INTEGER NOT NULL,
    both_ns INTEGER NOT NULL,
    PRIMARY KEY (thread, hour, stack)
) WITHOUT ROWID;

-- The intervals of a process that start in [from_ns, to_ns) are in stack_minute, no others.
CREATE TABLE summed_process (
    process INTEGER PRIMARY KEY REFERENCES process,
    from_ns INTEGER NOT NULL,
    to_ns INTEGER NOT NULL
);

-- What series were in each minute since the run's start: how long a reading holds stands in stepfunction.py. Written
-- when the series has a point of a later minute, or ends.
CREATE TABLE point_minute (
    series INTEGER NOT NULL REFERENCES series,
    minute INTEGER NOT NULL,
    readings INTEGER NOT NULL,        -- that hold in it
    known_ns INTEGER NOT NULL,        -- the part of the minute for which they hold
    area REAL NOT NULL,               -- the values, each times the nanoseconds that it holds
    least REAL NOT NULL,
    most REAL NOT NULL,
    last_ns INTEGER NOT NULL,         -- up to when the last of them holds
    PRIMARY KEY (series, minute)
) WITHOUT ROWID;

CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    kind TEXT NOT NULL,               -- started, ended, finding, hang, window, gpu, loss ...: docs/file-format.md lists them
    process INTEGER REFERENCES process,
    text TEXT NOT NULL
);

-- What slows the run. While it is live its last part is analyzed again and again; at its end all of it, once.
CREATE TABLE finding (
    id INTEGER PRIMARY KEY,
    is_whole INTEGER NOT NULL,        -- found in the whole run, not in its last part
    rule TEXT NOT NULL,               -- docs/findings.md lists them
    severity TEXT NOT NULL,           -- info, warning, critical
    title TEXT NOT NULL,              -- a sentence with its number, as of the last analysis that found it
    from_ns INTEGER NOT NULL,         -- when it was found first
    seen_ns INTEGER NOT NULL,         -- when it was found last
    to_ns INTEGER,                    -- the first analysis that no longer found it; NULL: it holds, or held to the end
    report TEXT NOT NULL              -- JSON: numbers, cause and remedy, see analyze.findings.finding.Finding
);

-- Answers about the whole of a long run, taken once at its end by the analysis that meta.findings_made_by names.
CREATE TABLE answer (
    question TEXT PRIMARY KEY,        -- summarize, take_lines, take_compared: the function that answers it
    value BLOB NOT NULL               -- MessagePack
) WITHOUT ROWID;

-- A torch.profiler window of one process, or why there is none.
CREATE TABLE window (
    id INTEGER PRIMARY KEY,
    process INTEGER NOT NULL REFERENCES process,
    source TEXT NOT NULL,             -- how it was taken: kineto
    asked_ns INTEGER NOT NULL,        -- the same for all processes that were asked at once
    error TEXT NOT NULL,              -- empty: it was taken
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    device_busy_ns INTEGER,           -- of all devices together, from the first work of each to the last; NULL: none did any
    device_idle_ns INTEGER,
    device_overlap_ns INTEGER,        -- with two things at once
    trace_bytes INTEGER NOT NULL,     -- the trace's size, unpacked
    trace BLOB                        -- in Chrome's trace format, gzipped; NULL: too large to be kept
);

-- A whole step within a window.
CREATE TABLE window_step (
    window INTEGER NOT NULL REFERENCES window,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    PRIMARY KEY (window, start_ns)
) WITHOUT ROWID;

-- A GPU in a window, from its first work to its last.
CREATE TABLE window_gpu (
    window INTEGER NOT NULL REFERENCES window,
    gpu INTEGER NOT NULL,             -- its number in the process
    busy_ns INTEGER NOT NULL,
    idle_ns INTEGER NOT NULL,
    overlap_ns INTEGER NOT NULL,      -- with two things at once
    host_ns INTEGER NOT NULL,         -- of idle_ns, until the call was over that launched what came next
    PRIMARY KEY (window, gpu)
) WITHOUT ROWID;

-- The launches of kernels and the work of a stream in a window. Of a launch without work the stream is not known: such
-- launches have a row with the numbers 0.
CREATE TABLE window_stream (
    window INTEGER NOT NULL REFERENCES window,
    gpu INTEGER NOT NULL,             -- its number in the process
    stream INTEGER NOT NULL,
    cupti INTEGER NOT NULL,           -- the version of CUPTI's interface; 0: not known
    launches INTEGER NOT NULL,
    lost INTEGER NOT NULL,            -- of the launches, those without work
    first INTEGER NOT NULL,           -- of the lost ones, those before any launch with work
    unlaunched INTEGER NOT NULL,      -- kernels without a launch in the trace
    misdated INTEGER NOT NULL         -- with the times of another clock: left out of all sums
);

-- A part of host_ns: a GPU had nothing to run, until a call on a thread launched something. The longest are kept.
CREATE TABLE host_gap (
    window INTEGER NOT NULL REFERENCES window,
    gpu INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    os_tid INTEGER NOT NULL,          -- of the thread, as far as the trace knows it
    PRIMARY KEY (window, gpu, start_ns)
) WITHOUT ROWID;

-- A call of CUDA's in which a thread stood that waits for GPUs or asks for their memory; or, without a thread, a time in
-- which a GPU ran nothing but an exchange with other ranks. The longest are kept.
CREATE TABLE window_wait (
    window INTEGER NOT NULL REFERENCES window,
    name TEXT NOT NULL,               -- of the call; collective
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    os_tid INTEGER NOT NULL,          -- of the thread, as far as the trace knows it; 0: none
    PRIMARY KEY (window, start_ns, os_tid, name)
) WITHOUT ROWID;

-- All calls of an operator with inputs of one shape, or of a kernel, in a window: sums, as of torch's key_averages().
CREATE TABLE operator (
    window INTEGER NOT NULL REFERENCES window,
    name TEXT NOT NULL,
    device TEXT NOT NULL,             -- where it ran: cpu, cuda
    is_annotation INTEGER NOT NULL,   -- a range such as record_function's, no operator
    input_shapes TEXT NOT NULL,       -- as torch prints them; [] if there are none, or they were not recorded
    calls INTEGER NOT NULL,
    self_cpu_ns INTEGER NOT NULL,     -- self: without what it called
    cpu_total_ns INTEGER NOT NULL,
    self_cuda_ns INTEGER NOT NULL,
    cuda_total_ns INTEGER NOT NULL,
    self_cpu_bytes INTEGER NOT NULL,  -- taken less given back meanwhile
    cpu_bytes INTEGER NOT NULL,
    self_cuda_bytes INTEGER NOT NULL,
    cuda_bytes INTEGER NOT NULL
);
CREATE INDEX operator_by_window ON operator (window);

-- The run made no progress from since_ns on, and that was told at at_ns.
CREATE TABLE hang (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    since_ns INTEGER NOT NULL,
    ended_ns INTEGER,                 -- when it went on; NULL: it did not
    cause TEXT NOT NULL,              -- queue, lock, collective ...: docs/hangs.md lists them
    text TEXT NOT NULL,               -- a sentence
    report TEXT NOT NULL              -- JSON: who stood where and waited for what, see records.HangReport
);

-- What the script wrote, when it ran on a pseudo-terminal of profd's. The oldest goes first when it grows too large.
CREATE TABLE output (
    id INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    data BLOB NOT NULL
);
