// The run: the columns of the page as typed arrays. It never changes.

class Run {
  constructor(extract) {
    Object.assign(this, extract);
    const lines = new Map(); // the first frame of each line: a comprehension is a function of its own
    this.bucketCount = Math.ceil(this.durationMs / this.bucketMs);
    this.stackParent = parentsOf(extract.stackUp);
    this.stackCount = this.stackFrame.length;
    this.lineFrame = Int32Array.from(this.frameFunction, (functionId, frame) => {
      const place = `${this.functionFile[functionId]}:${this.frameLine[frame]}`;
      return lines.get(place) ?? (lines.set(place, frame), frame);
    });
    this.processes = extract.processes.map((entry) => ({
      ...entry,
      cpu: decodeSeries(entry.cpu_cores),
      rss: decodeSeries(entry.rss_bytes),
      steps: decodeSeries(entry.steps_per_s),
      memory: entry.memory.map((kind) => ({ ...kind, ...decodeSeries(kind.bytes) })),
      cover: { atMs: runningSums(entry.cover.steps_ms), coveredMs: runningSums(entry.cover.covered_ms) },
    }));
    this.threads = extract.threads.map((entry) => ({ ...entry, ...decodeTimes(entry) }));
    this.gpus = extract.gpus.map(({ title, utilization, memory_bytes: memory }) => ({ title, gpu: decodeSeries(utilization), gpuMemory: decodeSeries(memory) }));
  }

  /** Return how long a process lived in a range for each millisecond of it that was recorded there. */
  weightOf(index, fromMs, toMs) {
    const process = this.processes[index];
    const end = Math.min(process.ended_ms ?? this.knownToMs, this.knownToMs, toMs);
    const lived = end - Math.max(process.seen_ms, fromMs);
    const covered = coveredUntil(process.cover, toMs) - coveredUntil(process.cover, fromMs);
    return covered > 0 ? Math.max(lived, covered) / covered : 1;
  }

  phasesSeen() {
    const isSeen = new Uint8Array(this.stackCount);
    for (const { stacks, timesMs } of this.threads) {
      for (let at = 0; at < stacks.length; at += 1) if (timesMs[at] > 0) isSeen[stacks[at]] = 1;
    }
    return new Set(this.stackPhase.filter((_, stack) => isSeen[stack]));
  }

  fileOf(functionId) { return this.files[this.functionFile[functionId]]; }

  processTitle(index) { return `${this.processes[index].title} · ${this.processes[index].pid}`; }

  /** Return a time since the start as the time of day where the page is read. */
  wallClock(ms) {
    const at = new Date(this.startedMs + ms);
    return [at.getHours(), at.getMinutes(), at.getSeconds()].map(twoDigits).join(":");
  }
}

function runningSums(steps) {
  let sum = 0;
  return new Float64Array(steps).map((step) => (sum += step));
}

/** Return a column divided by ten to the power of some digits. */
function scaled(column, digits) {
  const [times, parts] = [10 ** Math.max(-digits, 0), 10 ** Math.max(digits, 0)];
  return new Float64Array(column).map((number) => (number * times) / parts);
}

/** Return a series: `values[i]` held from `fromMs[i]` to `atMs[i]`, and nothing is known of the time between. */
function decodeSeries(series) {
  const atMs = runningSums(series.steps_ms);
  const fromMs = atMs.map((_, at) => (at ? atMs[at - 1] : 0));
  runningSums(series.gap_steps).forEach((place, at) => (fromMs[place] += series.gaps_ms[at]));
  return { fromMs, atMs, values: scaled(series.values, series.digits) };
}

/** Return when a thread did what; the times of a part are decoded when first asked for: a page opens without conditions. */
function decodeTimes(columns) {
  const later = ({ samples, times_100us: times }) => {
    let decoded = null;
    return { samples, get timesMs() { return (decoded ??= scaled(times, 1)); } };
  };
  const buckets = new Int32Array(runningSums(columns.steps));
  return { buckets, timesMs: scaled(columns.times_100us, 1), parts: columns.parts.map(later) };
}

/** Return how much of a process's time is covered before a time, in ms. */
function coveredUntil(cover, ms) {
  const { atMs, coveredMs } = cover;
  const after = lowerBound(atMs, ms);
  if (after === 0) return 0;
  if (after === atMs.length) return coveredMs[after - 1];
  const share = (ms - atMs[after - 1]) / (atMs[after] - atMs[after - 1]);
  return coveredMs[after - 1] + share * (coveredMs[after] - coveredMs[after - 1]);
}

/** Return the first index whose value is not below `wanted`; `values` ascend. */
function lowerBound(values, wanted) {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
