// The timeline: a band of phases a training thread, charts of CPU and memory below, events, and the selected range.

const LEFT = 118;
const RIGHT = 126;
const GAP = 8;
const AXIS = 22;
const MOST_BANDS = 16;
const MOST_GPUS = 8;
const MOST_EVENTS = 6; // in the tooltip
const MARK = 3; // half the width of an event's mark

class Timeline {
  constructor(node, tooltip, run, onrange) {
    this.run = run;
    this.tooltip = tooltip;
    this.canvas = new Canvas(node, () => this.draw());
    const training = run.threads.filter((thread) => run.isTraining(thread));
    this.bands = (training.length ? training : run.threads.filter((thread) => thread.main)).slice(0, MOST_BANDS);
    this.charts = chartsOf(run);
    this.drawn = new Map();
    this.brush = new Brush(node, this, onrange);
    node.addEventListener("mousemove", (event) => this.pointAt(event));
    node.addEventListener("mouseleave", () => tooltip.hide());
  }

  show(selection) {
    this.selection = selection;
    this.canvas.redraw();
  }

  get plotWidth() {
    return Math.max(this.canvas.width - LEFT - RIGHT, 50);
  }

  get chartsTop() {
    return this.bands.length * (BAND + GAP);
  }

  get plotHeight() {
    return this.chartsTop + this.charts.length * (CHART_HEIGHT + GAP);
  }

  toX(ms) {
    return LEFT + (ms / this.run.durationMs) * this.plotWidth;
  }

  toMs(x) {
    const share = (x - LEFT) / this.plotWidth;
    return Math.max(0, Math.min(1, share)) * this.run.durationMs;
  }

  // Drawing

  draw() {
    if (!this.selection) return;
    const colors = theme();
    const context = this.canvas.begin(this.plotHeight + AXIS);
    context.textBaseline = "middle";
    this.bands.forEach((thread, at) => this.drawBand(context, thread, at * (BAND + GAP), colors));
    this.charts.forEach((chart, at) => this.drawChart(context, chart, this.chartsTop + at * (CHART_HEIGHT + GAP), colors));
    this.drawAxis(context, colors);
    this.drawWindows(context, colors);
    this.drawEvents(context, colors);
    this.drawRange(context, colors);
  }

  drawBand(context, thread, top, colors) {
    this.drawTitle(context, this.run.processes[thread.process].title, String(this.run.processes[thread.process].pid), top + BAND / 2, colors);
    const { plotWidth } = this;
    const known = this.drawn.get(thread);
    const band = known?.width === plotWidth ? known : new Band(this.run, thread, plotWidth);
    this.drawn.set(thread, band);
    band.draw(context, LEFT, top, colors);
  }

  drawChart(context, chart, top, colors) {
    this.drawTitle(context, chart.title, chart.subtitle, top + CHART_HEIGHT / 2, colors);
    chart.draw(context, LEFT, top, this.plotWidth, colors);
    chart.drawReading(context, this.selection, LEFT + this.plotWidth + 10, top + CHART_HEIGHT / 2, colors);
  }

  drawTitle(context, title, subtitle, middle, colors) {
    context.textAlign = "left";
    context.font = `600 12px ${colors.font}`;
    context.fillStyle = colors.ink;
    context.fillText(fitText(context, title, LEFT - 10), 0, middle - 7);
    context.font = `11px ${colors.font}`;
    context.fillStyle = colors.dim;
    context.fillText(fitText(context, subtitle, LEFT - 10), 0, middle + 8);
  }

  drawAxis(context, colors) {
    const step = axisStep((this.run.durationMs / this.plotWidth) * 90);
    context.font = `11px ${colors.font}`;
    context.fillStyle = colors.dim;
    context.textAlign = "center";
    for (let ms = 0; ms <= this.run.durationMs; ms += step) {
      context.fillRect(this.toX(ms), this.plotHeight - GAP, 1, 4);
      context.fillText(elapsed(ms, step < 1000 ? 1 : 0), this.toX(ms), this.plotHeight + 6);
    }
    context.textAlign = "left";
  }

  drawEvents(context, colors) {
    for (const event of this.run.events) {
      if (event.kind === "started" || event.kind === "ended") continue;
      const x = this.xOfEvent(event);
      context.fillStyle = colors.ink;
      context.beginPath();
      context.moveTo(x - MARK, this.plotHeight - GAP + 2 * MARK);
      context.lineTo(x + MARK, this.plotHeight - GAP + 2 * MARK);
      context.lineTo(x, this.plotHeight - GAP);
      context.fill();
    }
  }

  /** Draw a bar under the charts where a torch window was taken. */
  drawWindows(context, colors) {
    context.fillStyle = colors.accent;
    for (const window of this.run.windows) {
      const from = this.toX(window.start_ms);
      context.fillRect(from, this.plotHeight - GAP, Math.max(this.toX(window.end_ms) - from, 3), 4);
    }
  }

  xOfEvent(event) {
    return this.toX(Math.max(0, Math.min(event.at_ms, this.run.durationMs)));
  }

  /** Return what a place on the timeline means: the time, and the events close by. */
  describe(x) {
    const ms = this.toMs(x);
    const near = this.run.events.filter((event) => Math.abs(this.xOfEvent(event) - x) <= MARK);
    return [
      element("b", {}, elapsed(ms, decimalsFor(this.run.durationMs))),
      element("span", { class: "dim" }, `  ${this.run.wallClock(ms)}`),
      ...near.slice(0, MOST_EVENTS).map((event) => element("div", {}, `${event.kind}: ${event.text}`)),
    ];
  }

  pointAt(event) {
    const x = event.clientX - this.canvas.node.getBoundingClientRect().left;
    if (x >= LEFT && x <= LEFT + this.plotWidth) this.tooltip.show(event, this.describe(x));
    else this.tooltip.hide();
  }

  drawRange(context, colors) {
    if (this.selection.isWholeRun) return;
    const from = this.toX(this.selection.fromMs);
    const to = this.toX(this.selection.toMs);
    const height = this.plotHeight - GAP;
    context.fillStyle = colors.page;
    context.globalAlpha = 0.72;
    context.fillRect(LEFT, 0, from - LEFT, height);
    context.fillRect(to, 0, LEFT + this.plotWidth - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = colors.accent;
    context.lineWidth = 2;
    context.strokeRect(from, 1, Math.max(to - from, 1), height - 2);
  }
}

/** Return what is charted: of each GPU its utilization and memory, then CPU and memory of all processes. */
function chartsOf(run) {
  const gpus = run.gpus.slice(0, MOST_GPUS).flatMap((gpu) => [
    new Chart(run, [gpu.gpu], gpu.title, "utilization", (share) => percent(share, 1), "mean", 1),
    new Chart(run, [gpu.gpuMemory], gpu.title, "memory", bytes, "most"),
  ]);
  const all = (name) => run.processes.map((process) => process[name]);
  const charts = [
    ...gpus,
    ...stepCharts(run),
    new Chart(run, all("cpu"), "CPU, cores", "all processes", significant, "mean"),
    new Chart(run, all("rss"), "memory, RSS", "all processes", bytes, "most"),
  ];
  return charts.filter((chart) => chart.isKnown);
}

/** Return the chart of the pace; ranks step together, so the first one that tells says it for all. */
function stepCharts(run) {
  const telling = run.processes.find((process) => process.steps.values.length);
  return telling ? [new Chart(run, [telling.steps], "steps", telling.title, (pace) => `${significant(pace)}/s`, "mean")] : [];
}

/** Return the smallest round distance of time that is not below `ms`. */
function axisStep(ms) {
  const round = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5];
  return round.find((each) => each >= ms) ?? Math.ceil(ms / 864e5) * 864e5;
}
