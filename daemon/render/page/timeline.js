// The timeline: a band of phases for each training thread, charts of CPU and memory, events, and the selected range.
// It reports ranges through `onrange(fromMs, toMs)`, with NaN for the whole run. Sizes are pixels.

const [LEFT, RIGHT, GAP, AXIS] = [118, 126, 8, 22]; // beside, between and below the bands and charts
const [BAND, COLUMN, LETTER_HEIGHT, CHART_HEIGHT] = [46, 3, 11, 34];
const [NARROW, HEAD, LEAST_HEIGHT] = [600, 19, 160]; // narrower than that, a line of words stands above each row
const ZOOM = 1.5; // by a turn of the wheel
const [MOST_BANDS, MOST_GPUS, MOST_EVENTS] = [16, 8, 6]; // events: in the tooltip
const MOST_PHASES = 3; // of a band, in the tooltip
const MARK = 3; // half the width of an event's mark
const CLICK = 3; // a hand moves as much without meaning to
const LETTER_STRIDE = 40; // columns from a letter of a phase to the next one
const LETTER_STRIDE_ANEW = 20; // where the phase begins anew
const CHART_CELLS = 600;
const CELL_MS = 200; // about the distance of a GPU's own readings
const AXIS_STEPS_MS = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5];

/** A part of the timeline in ms, the whole run at first: what is drawn, unlike the range that is selected. */
class View {
  constructor(run) {
    Object.assign(this, { wholeMs: run.durationMs, leastMs: Math.min(20 * run.bucketMs, run.durationMs) });
    this.reset();
  }

  get lengthMs() { return this.toMs - this.fromMs; }
  get isWhole() { return this.lengthMs >= this.wholeMs; }

  reset() { Object.assign(this, { fromMs: 0, toMs: this.wholeMs }); }

  /** Show so much, with a moment where it was, and say whether that changed anything. */
  zoom(factor, ms) {
    const length = Math.max(this.leastMs, Math.min(this.lengthMs * factor, this.wholeMs));
    return this.begin(ms - ((ms - this.fromMs) * length) / this.lengthMs, length);
  }

  begin(fromMs, length = this.lengthMs) {
    const from = Math.max(0, Math.min(fromMs, this.wholeMs - length));
    const isChanged = from !== this.fromMs || length !== this.lengthMs;
    Object.assign(this, { fromMs: from, toMs: from + length });
    return isChanged;
  }

  /** Move so that a range is in sight; all of the run if it is longer than what is shown. */
  reveal({ fromMs, toMs }) {
    if (toMs - fromMs > this.lengthMs) this.reset();
    else this.begin(Math.max(Math.min(this.fromMs, fromMs), toMs - this.lengthMs));
  }
}

class Timeline {
  constructor(node, tooltip, run, onrange) {
    Object.assign(this, { run, node, onrange, charts: chartsOf(run), view: new View(run) });
    this.canvas = new Canvas(node, () => this.draw());
    const mains = run.threads.filter((thread) => thread.main);
    const training = mains.filter((thread) => run.processes[thread.process].role === "main");
    this.threads = (training.length ? training : mains).slice(0, MOST_BANDS);
    this.bands = new Map(); // thread → its band, made for one width: for a long run that takes longer than to draw it
    this.cursor = element("i", { class: "cursor", hidden: "" });
    node.after(this.cursor);
    tooltip.follow(node, (event) => this.point(this.xOf(event)));
    node.addEventListener("mouseleave", () => (this.cursor.hidden = true));
    this.listen();
  }

  show(selection, pattern) {
    Object.assign(this, { selection, pattern });
    if (!selection.isWholeRun) this.view.reveal(selection);
    this.canvas.redraw();
  }

  // On a phone the names and readings stand above their rows.
  get isNarrow() { return this.canvas.width < NARROW; }
  get left() { return this.isNarrow ? 0 : LEFT; }
  get plotWidth() { return Math.max(this.canvas.width - (this.isNarrow ? 0 : LEFT + RIGHT), 50); }
  toX(ms) { return this.left + ((ms - this.view.fromMs) / this.view.lengthMs) * this.plotWidth; }

  toMs(x) { return this.view.fromMs + Math.max(0, Math.min(1, (x - this.left) / this.plotWidth)) * this.view.lengthMs; }

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
    this.node.addEventListener("dblclick", () => this.clear());
    this.node.addEventListener("wheel", (event) => this.onWheel(event));
    this.node.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Zoom, or move sideways; where nothing changes, the page scrolls. */
  onWheel(event) {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const isChanged = isSideways
      ? this.view.begin(this.view.fromMs + (event.deltaX / this.plotWidth) * this.view.lengthMs)
      : this.view.zoom(event.deltaY < 0 ? 1 / ZOOM : ZOOM, this.toMs(this.xOf(event)));
    if (!isChanged) return;
    event.preventDefault();
    this.canvas.redraw();
  }

  /** Show and select the whole run. */
  clear() {
    this.view.reset();
    this.onrange(NaN, NaN);
  }

  onKey(event) {
    const { fromMs, toMs } = this.selection;
    const zoom = (factor) => {
      this.view.zoom(factor, this.selection.isWholeRun ? this.toMs(this.left + this.plotWidth / 2) : (fromMs + toMs) / 2);
      this.canvas.redraw();
    };
    const actions = {
      Escape: () => this.clear(), Backspace: () => this.clear(), "+": () => zoom(1 / ZOOM), "-": () => zoom(ZOOM),
      ArrowLeft: () => this.move(-1, event.shiftKey), ArrowRight: () => this.move(1, event.shiftKey),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  /** Move the selected range, or change where it ends; the first time select a part of what is shown. */
  move(direction, isLength) {
    const { run, view, onrange } = this;
    const { fromMs, toMs, isWholeRun } = this.selection;
    const length = isWholeRun ? view.lengthMs / 10 : toMs - fromMs;
    const step = Math.max(length / 4, run.bucketMs) * direction;
    const moved = Math.max(0, Math.min(fromMs + step, run.durationMs - length));
    if (isWholeRun) onrange(view.fromMs, view.fromMs + length);
    else if (isLength) onrange(fromMs, Math.max(toMs + step, fromMs + run.bucketMs));
    else onrange(moved, moved + length);
  }

  /** Return the rows from the top down, each with where it lies and how high it is. */
  rows() {
    const head = this.isNarrow ? HEAD : 0;
    const others = this.charts.length * (CHART_HEIGHT + head + GAP) + AXIS;
    const room = (LEAST_HEIGHT - others) / Math.max(this.threads.length, 1) - head - GAP;
    const bands = this.threads.map((thread) => {
      const { title, pid } = this.run.processes[thread.process];
      return { title, subtitle: String(pid), height: Math.max(BAND, room), thread };
    });
    let below = 0;
    return [...bands, ...this.charts.map((chart) => ({ title: chart.title, subtitle: chart.subtitle, height: CHART_HEIGHT, chart }))].map((row) => {
      const top = below + head;
      below = top + row.height + GAP;
      return { ...row, top };
    });
  }

  /** Return the band of a thread, as it is at this width and in this part of the run. */
  bandOf(thread) {
    const { fromMs, toMs } = this.view;
    const made = `${this.plotWidth} ${fromMs} ${toMs}`;
    if (this.bands.get(thread)?.made !== made) this.bands.set(thread, new Band(this.run, thread, this.plotWidth, this.view, made));
    return this.bands.get(thread);
  }

  draw() {
    if (!this.selection) return;
    const { left, plotWidth } = this;
    const colors = theme();
    const rows = this.rows();
    const bottom = rows.reduce((most, { top, height }) => Math.max(most, top + height), 0);
    const context = this.canvas.begin(bottom + GAP + AXIS);
    this.cursor.style.height = `${bottom}px`;
    context.textBaseline = "middle";
    for (const row of rows) {
      const { top, height, thread, chart } = row;
      if (thread) this.bandOf(thread).draw(context, left, top, height, colors);
      else chart.draw(context, left, top, plotWidth, this.view, colors);
      this.drawWords(context, row, chart?.readingOf(this.selection) ?? [], colors);
    }
    this.drawAxis(context, bottom, colors);
    this.drawRange(context, bottom, colors);
  }

  /** Write what a row is, and its reading: at its sides, or above it. */
  drawWords(context, { title, subtitle, top, height }, reading, colors) {
    const { left, plotWidth } = this;
    if (this.isNarrow) {
      fillOneLine(context, title, subtitle, 0, top - HEAD / 2, colors);
      context.textAlign = "right";
      fillOneLine(context, reading[0] ?? "", "", plotWidth, top - HEAD / 2, colors);
      context.textAlign = "left";
      return;
    }
    fillTwoLines(context, title, subtitle, 0, top + height / 2, colors, LEFT - 10);
    if (reading.length) fillTwoLines(context, ...reading, left + plotWidth + 10, top + height / 2, colors);
  }

  /** Draw times, bars where torch windows were taken, and marks of events below the charts. */
  drawAxis(context, bottom, colors) {
    const { left, plotWidth, view } = this;
    const leastMs = (view.lengthMs / plotWidth) * 90;
    const step = AXIS_STEPS_MS.find((each) => each >= leastMs) ?? Math.ceil(leastMs / 864e5) * 864e5;
    Object.assign(context, { font: `11px ${colors.font}`, fillStyle: colors.dim });
    for (let ms = Math.ceil(view.fromMs / step) * step; ms <= view.toMs; ms += step) {
      const x = this.toX(ms);
      context.textAlign = x < 20 ? "left" : this.isNarrow && x > plotWidth - 20 ? "right" : "center";
      context.fillRect(x, bottom, 1, 4);
      context.fillText(elapsed(ms, step < 1000 ? 1 : 0), x, bottom + GAP + 6);
    }
    Object.assign(context, { textAlign: "left", fillStyle: colors.accent });
    for (const window of this.run.windows) {
      if (window.end_ms < view.fromMs || window.start_ms > view.toMs) continue;
      const [from, to] = [window.start_ms, window.end_ms].map((ms) => Math.max(left, Math.min(this.toX(ms), left + plotWidth)));
      context.fillRect(from, bottom, Math.max(to - from, 3), 4);
    }
    context.fillStyle = colors.ink;
    for (const event of this.run.events) {
      const x = this.xOfEvent(event);
      if (event.kind === "started" || event.kind === "ended" || x < left || x > left + plotWidth) continue;
      context.globalAlpha = this.pattern && !this.pattern.test(`${event.kind}: ${event.text}`) ? 0.25 : 1;
      context.beginPath();
      context.moveTo(x - MARK, bottom + 2 * MARK);
      context.lineTo(x + MARK, bottom + 2 * MARK);
      context.lineTo(x, bottom);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  xOfEvent(event) { return this.toX(Math.max(0, Math.min(event.at_ms, this.run.durationMs))); }

  drawRange(context, bottom, colors) {
    if (this.selection.isWholeRun) return;
    const { left, plotWidth } = this;
    const [from, to] = [this.selection.fromMs, this.selection.toMs].map((ms) => Math.max(left, Math.min(this.toX(ms), left + plotWidth)));
    Object.assign(context, { fillStyle: colors.page, globalAlpha: 0.72 });
    context.fillRect(left, 0, from - left, bottom);
    context.fillRect(to, 0, left + plotWidth - to, bottom);
    Object.assign(context, { globalAlpha: 1, strokeStyle: colors.accent, lineWidth: 2 });
    context.strokeRect(from, 1, Math.max(to - from, 1), bottom - 2);
  }

  /** Mark a place, and return what is there; null beside the rows. */
  point(x) {
    const isInside = x >= this.left && x <= this.left + this.plotWidth;
    this.cursor.hidden = !isInside;
    this.cursor.style.left = `${x}px`;
    return isInside ? this.describe(x) : null;
  }

  /** Return a place on the timeline in words: the time, the value of every row, and the events close by. */
  describe(x) {
    const ms = this.toMs(x);
    const values = this.rows().map(({ title, subtitle, thread, chart }) => {
      const value = thread ? this.bandOf(thread).describe(x - this.left) : chart.valueAt(ms, this.view);
      return [thread ? title : `${title} · ${subtitle}`, value];
    });
    const near = this.run.events.filter((event) => Math.abs(this.xOfEvent(event) - x) <= MARK);
    return [
      element("b", {}, elapsed(ms, decimalsFor(this.run.durationMs))),
      element("span", { class: "dim" }, `  ${this.run.wallClock(ms)}`),
      factList(values),
      ...near.slice(0, MOST_EVENTS).map((event) => element("div", {}, `${event.kind}: ${event.text}`)),
    ];
  }
}

/** A thread's phases, a column of pixels at a time, with letters so that colors alone carry nothing. */
class Band {
  /** A band is of a part of the run, so many pixels wide; `made` says for what it was made. */
  constructor(run, thread, width, view, made) {
    Object.assign(this, { run, width, made });
    this.columns = phaseColumns(run, thread, Math.floor(width / COLUMN), view);
    this.letters = lettersOf(this.columns);
  }

  /** Return the phases in the column at a place, the largest first. */
  describe(x) {
    const column = this.columns[Math.min(Math.floor(x / COLUMN), this.columns.length - 1)];
    const parts = column.map(([phase, from, to]) => [this.run.phases[phase].name, to - from]).sort((a, b) => b[1] - a[1]);
    if (parts.length < 2) return parts.length ? parts[0][0] : UNKNOWN;
    return parts.slice(0, MOST_PHASES).map(([name, share]) => `${name} ${percent(share, 1)}`).join(", ");
  }

  draw(context, left, top, height, colors) {
    context.fillStyle = colors.faint;
    context.fillRect(left, top, this.width, height);
    this.columns.forEach((column, at) => {
      for (const [phase, from, to] of column) {
        context.fillStyle = this.run.phases[phase].color;
        context.fillRect(left + at * COLUMN, top + height * (1 - to), COLUMN, height * (to - from));
      }
    });
    Object.assign(context, { font: `600 10px ${colors.font}`, textAlign: "center" });
    for (const [phase, at, middle] of this.letters) {
      const { color, letter } = this.run.phases[phase];
      context.fillStyle = inkOn(parseColor(color));
      context.fillText(letter, left + (at + 0.5) * COLUMN, top + height * (1 - middle));
    }
    context.textAlign = "left";
  }
}

/** Return so many columns over a part of a run: where each phase lies, from 0 at the bottom to 1, as [phase, from, to]. */
function phaseColumns(run, thread, count, view) {
  const phases = run.phases.length;
  const sums = new Float64Array(count * phases);
  const scale = (count * run.bucketMs) / view.lengthMs;
  const first = view.fromMs / run.bucketMs;
  for (let at = 0; at < thread.buckets.length; at += 1) {
    const begin = (thread.buckets[at] - first) * scale;
    const end = begin + thread.spans[at] * scale;
    if (begin >= count || end <= 0) continue;
    const [from, to] = [Math.max(0, begin), Math.min(count, end)];
    const density = thread.timesMs[at] / Math.max(end - begin, 1e-9);
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
    this.grid = sumOverTime(series, new View(run));
    this.most = this.grid.reduce((best, value) => Math.max(best, value || 0), full);
  }

  /** Return the values in a part of the run, from its beginning to its end. */
  cellsIn(view) {
    if (view.isWhole) return this.grid;
    const made = `${view.fromMs} ${view.toMs}`;
    if (this.cells?.made !== made) this.cells = { made, values: sumOverTime(this.series, view) };
    return this.cells.values;
  }

  /** Return the value at a moment, as it is written. */
  valueAt(ms, view) {
    const cells = this.cellsIn(view);
    const value = cells[Math.min(Math.floor(((ms - view.fromMs) / view.lengthMs) * cells.length), cells.length - 1)];
    return Number.isNaN(value) ? UNKNOWN : this.write(value);
  }

  draw(context, left, top, width, view, colors) {
    context.fillStyle = colors.faint;
    context.fillRect(left, top, width, CHART_HEIGHT);
    if (!this.most) return;
    const cells = this.cellsIn(view);
    const cell = width / cells.length;
    context.fillStyle = colors.accent;
    cells.forEach((value, at) => {
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

  /** Return what is written of a selection, in one or two texts; null if nothing is known of it. */
  readingOf(selection) {
    const scale = this.grid.length / this.run.durationMs;
    const first = Math.floor(selection.fromMs * scale);
    const inside = this.grid.slice(first, Math.max(Math.ceil(selection.toMs * scale), first + 1));
    const values = inside.filter((value) => !Number.isNaN(value));
    if (!values.length) return null;
    const most = this.write(Math.max(...values));
    return this.reading === "mean" ? [this.write(this.meanIn(selection) ?? values[0]), `mean, most ${most}`] : [most, "the most"];
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

/** Return the sum of some series on a grid over a part of the run; NaN where nothing is known. */
function sumOverTime(series, view) {
  const count = Math.max(1, Math.min(CHART_CELLS, Math.ceil(view.lengthMs / CELL_MS)));
  const grid = new Float64Array(count).fill(NaN);
  const place = (ms) => Math.round(((ms - view.fromMs) * count) / view.lengthMs);
  for (const { fromMs, atMs, values } of series) {
    let cell = 0;
    for (let at = 0; at < atMs.length; at += 1) {
      const end = Math.min(place(atMs[at]), count);
      for (cell = Math.max(cell, place(fromMs[at])); cell < end; cell += 1) {
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
