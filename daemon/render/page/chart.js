// A chart of the timeline: one number over time, the sum of some series, with a reading for the selection.

const CHART_HEIGHT = 34;
const CHART_CELLS = 600;
const CELL_MS = 200; // about the distance of a GPU's own readings

class Chart {
  /** `reading` is what of the selection is written in figures: its `mean`, or the `most`; `full` what fills the chart. */
  constructor(run, series, title, subtitle, write, reading, full = 0) {
    this.run = run;
    this.series = series;
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

  /** The mean over the part of a selection that is known; null where nothing is. */
  meanIn(selection) {
    return meanOf(this.series, selection.fromMs, selection.toMs);
  }

  drawReading(context, selection, x, middle, colors) {
    const scale = this.grid.length / this.run.durationMs;
    const first = Math.floor(selection.fromMs * scale);
    const inside = this.grid.slice(first, Math.max(Math.ceil(selection.toMs * scale), first + 1));
    const values = [...inside].filter((value) => !Number.isNaN(value));
    if (!values.length) return;
    const most = this.write(Math.max(...values));
    const mean = this.write(this.meanIn(selection) ?? values[0]);
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

/** Add a series to a grid, where it is known. */
function addToGrid(grid, series, durationMs) {
  const scale = grid.length / durationMs;
  let cell = 0;
  for (let at = 0; at < series.atMs.length; at += 1) {
    const end = Math.min(Math.round(series.atMs[at] * scale), grid.length);
    for (cell = Math.max(cell, Math.round(series.fromMs[at] * scale)); cell < end; cell += 1) {
      grid[cell] = (Number.isNaN(grid[cell]) ? 0 : grid[cell]) + series.values[at];
    }
  }
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
  const knownMs = unionOf(held);
  return knownMs ? area / knownMs : last;
}

/** Return how much some ranges cover together. */
function unionOf(ranges) {
  let [covered, until] = [0, -Infinity];
  for (const [begin, end] of ranges.sort((one, other) => one[0] - other[0])) {
    covered += Math.max(end - Math.max(begin, until), 0);
    until = Math.max(until, end);
  }
  return covered;
}
