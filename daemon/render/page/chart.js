// A chart of the timeline: one number over time, the sum of some series, with a reading for the selection.

const CHART_HEIGHT = 34;
const CHART_CELLS = 600;
const CELL_MS = 200; // about the distance of a GPU's own readings
const HOLD_MS = 5_000; // how long a value stands for the time before it, where the one before is missing

class Chart {
  /** `reading` is what of the selection is written in figures: its `mean`, or the `most`; `full` what fills the chart. */
  constructor(run, series, title, subtitle, write, reading, full = 0) {
    this.run = run;
    this.title = title;
    this.subtitle = subtitle;
    this.write = write;
    this.reading = reading;
    this.grid = sumOverTime(run, series);
    this.most = this.grid.reduce((best, value) => Math.max(best, value || 0), full);
  }

  get isKnown() {
    return this.grid.some((value) => !Number.isNaN(value));
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

  drawReading(context, selection, x, middle, colors) {
    const scale = this.grid.length / this.run.durationMs;
    const first = Math.floor(selection.fromMs * scale);
    const inside = this.grid.slice(first, Math.max(Math.ceil(selection.toMs * scale), first + 1));
    const values = [...inside].filter((value) => !Number.isNaN(value));
    if (!values.length) return;
    const most = this.write(Math.max(...values));
    const mean = this.write(values.reduce((sum, value) => sum + value, 0) / values.length);
    context.font = `600 12px ${colors.font}`;
    context.fillStyle = colors.ink;
    context.fillText(this.reading === "mean" ? mean : most, x, middle - 7);
    context.font = `11px ${colors.font}`;
    context.fillStyle = colors.dim;
    context.fillText(this.reading === "mean" ? `mean, most ${most}` : "the most", x, middle + 8);
  }
}

/** Return the sum of some series on a grid of time; NaN where nothing is known. */
function sumOverTime(run, series) {
  const count = Math.max(1, Math.min(CHART_CELLS, Math.ceil(run.durationMs / CELL_MS)));
  const grid = new Float64Array(count).fill(NaN);
  for (const each of series) addToGrid(grid, each, run.durationMs);
  return grid;
}

/** Add a series to a grid; each value stands for the time before it, up to the one before; a mean for all of it, the first none; a reading no longer than usual. */
function addToGrid(grid, series, durationMs) {
  const scale = grid.length / durationMs;
  const holdMs = Math.max(HOLD_MS, 2 * meanStep(series.atMs));
  let cell = 0;
  for (let at = 0; at < series.atMs.length; at += 1) {
    const ms = series.atMs[at];
    const beforeMs = at ? series.atMs[at - 1] : series.isMean ? ms : 0;
    const sinceMs = series.isMean ? beforeMs : Math.max(beforeMs, ms - holdMs);
    const end = Math.min(Math.round(ms * scale), grid.length);
    for (cell = Math.max(cell, Math.round(sinceMs * scale)); cell < end; cell += 1) {
      grid[cell] = (Number.isNaN(grid[cell]) ? 0 : grid[cell]) + series.values[at];
    }
  }
}

function meanStep(atMs) {
  const count = atMs.length;
  return count > 1 ? (atMs[count - 1] - atMs[0]) / (count - 1) : 0;
}
