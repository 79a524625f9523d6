// The timeline: a band of phases for each training thread, charts of CPU and memory, events, and the selected range.
// It reports ranges through `onrange(fromMs, toMs)`, with NaN for the whole run. Sizes are pixels.

const [LEFT, RIGHT, GAP, AXIS] = [118, 126, 8, 22]; // beside, between and below the bands and charts
const [BAND, COLUMN, LETTER_HEIGHT, CHART_HEIGHT] = [46, 3, 11, 34];
const [MOST_BANDS, MOST_GPUS, MOST_EVENTS] = [16, 8, 6]; // events: in the tooltip
const MARK = 3; // half the width of an event's mark
const CLICK = 3; // a hand moves as much without meaning to
const LETTER_STRIDE = 40; // columns from a letter of a phase to the next one
const LETTER_STRIDE_ANEW = 20; // where the phase begins anew
const CHART_CELLS = 600;
const CELL_MS = 200; // about the distance of a GPU's own readings
const AXIS_STEPS_MS = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5];

class Timeline {
  constructor(node, tooltip, run, onrange) {
    Object.assign(this, { run, node, onrange, charts: chartsOf(run) });
    this.canvas = new Canvas(node, () => this.draw());
    const mains = run.threads.filter((thread) => thread.main);
    const training = mains.filter((thread) => run.processes[thread.process].role === "main");
    this.threads = (training.length ? training : mains).slice(0, MOST_BANDS);
    this.bands = new Map(); // thread → its band, made for one width: for a long run that takes longer than to draw it
    tooltip.follow(node, (event) => {
      const x = this.xOf(event);
      return x >= LEFT && x <= LEFT + this.plotWidth ? this.describe(x) : null;
    });
    this.listen();
  }

  show(selection) {
    this.selection = selection;
    this.canvas.redraw();
  }

  get plotWidth() { return Math.max(this.canvas.width - LEFT - RIGHT, 50); }
  toX(ms) { return LEFT + (ms / this.run.durationMs) * this.plotWidth; }

  toMs(x) { return Math.max(0, Math.min(1, (x - LEFT) / this.plotWidth)) * this.run.durationMs; }

  xOf(event) { return event.clientX - this.node.getBoundingClientRect().left; }

  listen() {
    let anchorX;
    const drag = (event) => {
      const x = this.xOf(event);
      if (anchorX !== undefined && Math.abs(x - anchorX) >= CLICK) this.onrange(this.toMs(anchorX), this.toMs(x));
    };
    this.node.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      anchorX = this.xOf(event);
      this.node.setPointerCapture(event.pointerId);
    });
    for (const name of ["pointermove", "pointerup", "pointercancel"]) this.node.addEventListener(name, drag);
    for (const name of ["pointerup", "pointercancel"]) this.node.addEventListener(name, () => (anchorX = undefined));
    this.node.addEventListener("dblclick", () => this.onrange(NaN, NaN));
    this.node.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    const { run, onrange } = this;
    const { fromMs, toMs, isWholeRun } = this.selection;
    const length = isWholeRun ? run.durationMs / 10 : toMs - fromMs;
    const step = Math.max(length / 4, run.bucketMs) * (event.key === "ArrowLeft" ? -1 : 1);
    const moved = Math.max(0, Math.min(fromMs + step, run.durationMs - length));
    if (event.key === "Escape" || event.key === "Backspace") onrange(NaN, NaN);
    else if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    else if (isWholeRun) onrange(0, length);
    else if (event.shiftKey) onrange(fromMs, Math.max(toMs + step, fromMs + run.bucketMs));
    else onrange(moved, moved + length);
    event.preventDefault();
  }

  draw() {
    if (!this.selection) return;
    const { run, plotWidth } = this;
    const colors = theme();
    const chartsTop = this.threads.length * (BAND + GAP);
    const bottom = chartsTop + this.charts.length * (CHART_HEIGHT + GAP) - GAP;
    const context = this.canvas.begin(bottom + GAP + AXIS);
    context.textBaseline = "middle";
    this.threads.forEach((thread, at) => {
      const top = at * (BAND + GAP);
      const { title, pid } = run.processes[thread.process];
      fillTwoLines(context, title, String(pid), 0, top + BAND / 2, colors, LEFT - 10);
      if (this.bands.get(thread)?.width !== plotWidth) this.bands.set(thread, new Band(run, thread, plotWidth));
      this.bands.get(thread).draw(context, LEFT, top, colors);
    });
    this.charts.forEach((chart, at) => {
      const top = chartsTop + at * (CHART_HEIGHT + GAP);
      fillTwoLines(context, chart.title, chart.subtitle, 0, top + CHART_HEIGHT / 2, colors, LEFT - 10);
      chart.draw(context, LEFT, top, plotWidth, colors);
      chart.drawReading(context, this.selection, LEFT + plotWidth + 10, top + CHART_HEIGHT / 2, colors);
    });
    this.drawAxis(context, bottom, colors);
    this.drawRange(context, bottom, colors);
  }

  /** Draw times, bars where torch windows were taken, and marks of events below the charts. */
  drawAxis(context, bottom, colors) {
    const leastMs = (this.run.durationMs / this.plotWidth) * 90;
    const step = AXIS_STEPS_MS.find((each) => each >= leastMs) ?? Math.ceil(leastMs / 864e5) * 864e5;
    Object.assign(context, { font: `11px ${colors.font}`, fillStyle: colors.dim, textAlign: "center" });
    for (let ms = 0; ms <= this.run.durationMs; ms += step) {
      context.fillRect(this.toX(ms), bottom, 1, 4);
      context.fillText(elapsed(ms, step < 1000 ? 1 : 0), this.toX(ms), bottom + GAP + 6);
    }
    Object.assign(context, { textAlign: "left", fillStyle: colors.accent });
    for (const window of this.run.windows) {
      const from = this.toX(window.start_ms);
      context.fillRect(from, bottom, Math.max(this.toX(window.end_ms) - from, 3), 4);
    }
    context.fillStyle = colors.ink;
    for (const event of this.run.events) {
      if (event.kind === "started" || event.kind === "ended") continue;
      const x = this.xOfEvent(event);
      context.beginPath();
      context.moveTo(x - MARK, bottom + 2 * MARK);
      context.lineTo(x + MARK, bottom + 2 * MARK);
      context.lineTo(x, bottom);
      context.fill();
    }
  }

  xOfEvent(event) { return this.toX(Math.max(0, Math.min(event.at_ms, this.run.durationMs))); }

  drawRange(context, bottom, colors) {
    if (this.selection.isWholeRun) return;
    const [from, to] = [this.toX(this.selection.fromMs), this.toX(this.selection.toMs)];
    Object.assign(context, { fillStyle: colors.page, globalAlpha: 0.72 });
    context.fillRect(LEFT, 0, from - LEFT, bottom);
    context.fillRect(to, 0, LEFT + this.plotWidth - to, bottom);
    Object.assign(context, { globalAlpha: 1, strokeStyle: colors.accent, lineWidth: 2 });
    context.strokeRect(from, 1, Math.max(to - from, 1), bottom - 2);
  }

  /** Return a place on the timeline in words: the time, and the events close by. */
  describe(x) {
    const ms = this.toMs(x);
    const near = this.run.events.filter((event) => Math.abs(this.xOfEvent(event) - x) <= MARK);
    return [
      element("b", {}, elapsed(ms, decimalsFor(this.run.durationMs))),
      element("span", { class: "dim" }, `  ${this.run.wallClock(ms)}`),
      ...near.slice(0, MOST_EVENTS).map((event) => element("div", {}, `${event.kind}: ${event.text}`)),
    ];
  }
}

/** A thread's phases, a column of pixels at a time, with letters so that colors alone carry nothing. */
class Band {
  constructor(run, thread, width) {
    Object.assign(this, { run, width });
    this.columns = phaseColumns(run, thread, Math.floor(width / COLUMN));
    this.letters = lettersOf(this.columns);
  }

  draw(context, left, top, colors) {
    context.fillStyle = colors.faint;
    context.fillRect(left, top, this.width, BAND);
    this.columns.forEach((column, at) => {
      for (const [phase, from, to] of column) {
        context.fillStyle = this.run.phases[phase].color;
        context.fillRect(left + at * COLUMN, top + BAND * (1 - to), COLUMN, BAND * (to - from));
      }
    });
    Object.assign(context, { font: `600 10px ${colors.font}`, textAlign: "center" });
    for (const [phase, at, middle] of this.letters) {
      const { color, letter } = this.run.phases[phase];
      context.fillStyle = inkOn(parseColor(color));
      context.fillText(letter, left + (at + 0.5) * COLUMN, top + BAND * (1 - middle));
    }
    context.textAlign = "left";
  }
}

/** Return so many columns over a run: where each phase lies, from 0 at the bottom to 1, as [phase, from, to]. */
function phaseColumns(run, thread, count) {
  const phases = run.phases.length;
  const sums = new Float64Array(count * phases);
  const scale = (count * run.bucketMs) / run.durationMs;
  for (let at = 0; at < thread.buckets.length; at += 1) {
    const from = Math.max(0, thread.buckets[at] * scale);
    const to = Math.min(count, (thread.buckets[at] + thread.spans[at]) * scale);
    const density = thread.timesMs[at] / Math.max(to - from, 1e-9);
    const phase = run.stackPhase[thread.stacks[at]];
    for (let column = Math.floor(from); column < to; column += 1) {
      const inside = Math.min(to, column + 1) - Math.max(from, column);
      sums[column * phases + phase] += density * inside;
    }
  }
  return Array.from({ length: count }, (_, column) => {
    const found = [];
    const ofColumn = sums.subarray(column * phases, (column + 1) * phases);
    const whole = ofColumn.reduce((total, sum) => total + sum, 0);
    let below = 0;
    ofColumn.forEach((sum, phase) => {
      if (sum > 0) found.push([phase, below / whole, (below += sum) / whole]);
    });
    return found;
  });
}

/** Return the letters that columns have room for, not too close to each other: [phase, column, height]. */
function lettersOf(columns) {
  const half = LETTER_HEIGHT / 2 / BAND;
  const hasRoom = (column, phase, middle) => column.some(([each, from, to]) => each === phase && from <= middle - half && to >= middle + half);
  const [drawnAt, seenAt] = [new Map(), new Map()];
  const found = [];
  for (let at = 1; at < columns.length - 1; at += 1) {
    for (const [phase, from, to] of columns[at]) {
      const middle = (from + to) / 2;
      if (![at - 1, at, at + 1].every((near) => hasRoom(columns[near], phase, middle))) continue;
      const stride = seenAt.get(phase) === at - 1 ? LETTER_STRIDE : LETTER_STRIDE_ANEW;
      seenAt.set(phase, at);
      if (at < (drawnAt.get(phase) ?? -Infinity) + stride) continue;
      drawnAt.set(phase, at);
      found.push([phase, at, middle]);
    }
  }
  return found;
}

/** One number over time, the sum of some series, with a reading for the selection. */
class Chart {
  /** `reading` is what is written of the selection: its `mean`, or the `most`; `full` is the value that fills the chart. */
  constructor(run, series, title, subtitle, write, reading, full = 0) {
    Object.assign(this, { run, series, title, subtitle, write, reading });
    this.grid = sumOverTime(run, series);
    this.most = this.grid.reduce((best, value) => Math.max(best, value || 0), full);
  }

  draw(context, left, top, width, colors) {
    context.fillStyle = colors.faint;
    context.fillRect(left, top, width, CHART_HEIGHT);
    if (!this.most) return;
    const cell = width / this.grid.length;
    context.fillStyle = colors.accent;
    this.grid.forEach((value, at) => {
      if (Number.isNaN(value)) return;
      const from = Math.round(left + at * cell);
      const to = Math.round(left + (at + 1) * cell);
      const height = Math.max((value / (this.most * 1.08)) * CHART_HEIGHT, 1.5);
      context.globalAlpha = 0.28;
      context.fillRect(from, top + CHART_HEIGHT - height, to - from, height);
      context.globalAlpha = 1;
      context.fillRect(from, top + CHART_HEIGHT - height, to - from, 1.5);
    });
  }

  meanIn(selection) { return meanOf(this.series, selection.fromMs, selection.toMs); }

  drawReading(context, selection, x, middle, colors) {
    const scale = this.grid.length / this.run.durationMs;
    const first = Math.floor(selection.fromMs * scale);
    const inside = this.grid.slice(first, Math.max(Math.ceil(selection.toMs * scale), first + 1));
    const values = inside.filter((value) => !Number.isNaN(value));
    if (!values.length) return;
    const most = this.write(Math.max(...values));
    const texts = this.reading === "mean" ? [this.write(this.meanIn(selection) ?? values[0]), `mean, most ${most}`] : [most, "the most"];
    fillTwoLines(context, ...texts, x, middle, colors);
  }
}

/** Return the charts: utilization and memory of each GPU, the pace of the steps, CPU and memory of all processes. */
function chartsOf(run) {
  const gpus = run.gpus.slice(0, MOST_GPUS).flatMap((gpu) => [
    new Chart(run, [gpu.gpu], gpu.title, "utilization", (share) => percent(share, 1), "mean", 1),
    new Chart(run, [gpu.gpuMemory], gpu.title, "memory", bytes, "most"),
  ]);
  // Ranks step together, so one that has a counter stands for all.
  const stepping = run.processes.filter((process) => process.steps.values.length).slice(0, 1);
  const all = (name) => run.processes.map((process) => process[name]);
  const charts = [
    ...gpus,
    ...stepping.map(({ steps, title }) => new Chart(run, [steps], "steps", title, (pace) => `${significant(pace)}/s`, "mean")),
    new Chart(run, all("cpu"), "CPU, cores", "all processes", significant, "mean"),
    new Chart(run, all("rss"), "memory, RSS", "all processes", bytes, "most"),
  ];
  return charts.filter((chart) => chart.grid.some((value) => !Number.isNaN(value)));
}

/** Return the sum of some series on a grid of time; NaN where nothing is known. */
function sumOverTime(run, series) {
  const count = Math.max(1, Math.min(CHART_CELLS, Math.ceil(run.durationMs / CELL_MS)));
  const grid = new Float64Array(count).fill(NaN);
  const scale = count / run.durationMs;
  for (const { fromMs, atMs, values } of series) {
    let cell = 0;
    for (let at = 0; at < atMs.length; at += 1) {
      const end = Math.min(Math.round(atMs[at] * scale), count);
      for (cell = Math.max(cell, Math.round(fromMs[at] * scale)); cell < end; cell += 1) {
        grid[cell] = (Number.isNaN(grid[cell]) ? 0 : grid[cell]) + values[at];
      }
    }
  }
  return grid;
}

/** Return the mean of the sum of some series over the part of a range where any of them is known; of a moment its value. */
function meanOf(series, fromMs, toMs) {
  let [area, last] = [0, null];
  const held = [];
  for (const { fromMs: begins, atMs: ends, values } of series) {
    for (let at = lowerBound(ends, fromMs); at < ends.length && begins[at] < toMs; at += 1) {
      const [begin, end] = [Math.max(begins[at], fromMs), Math.min(ends[at], toMs)];
      last = values[at];
      area += values[at] * (end - begin);
      if (held.length && held[held.length - 1][1] === begin) held[held.length - 1][1] = end;
      else held.push([begin, end]);
    }
  }
  let [knownMs, until] = [0, -Infinity];
  for (const [begin, end] of held.sort((one, other) => one[0] - other[0])) {
    knownMs += Math.max(end - Math.max(begin, until), 0);
    until = Math.max(until, end);
  }
  return knownMs ? area / knownMs : last;
}
