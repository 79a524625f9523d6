// The memory tab: how much each process has over the selection, as a line and in figures, and whether it grows.

const LINE_WIDTH = 220;
const LINE_HEIGHT = 26;
const SVG = "http://www.w3.org/2000/svg";

function memoryColumns() {
  const number = (title, field, write, first) => ({ title, numeric: true, first, value: (row) => row[field], cell: (row) => write(row[field]) });
  return [
    { title: "process", value: (row) => row.title, cell: (row) => pickButton(row.title), kind: "name" },
    { title: "memory", value: (row) => row.kind, cell: (row) => row.kind },
    { title: "over the selection", value: (row) => row.most, cell: (row) => sparkline(row.values) },
    number("at first", "firstBytes", bytes),
    number("at last", "lastBytes", bytes),
    number("most", "most", bytes, "descending"),
    number("change", "change", (count) => change(count, "bytes")),
    { title: "change a minute", numeric: true, value: (row) => row.pace ?? 0, cell: (row) => (row.pace === null ? UNKNOWN : change(row.pace, "bytes")) },
    { title: "over the whole run", value: (row) => row.growth, cell: (row) => row.growth, kind: "growth" },
  ];
}

function memoryRows(run, selection) {
  return run.processes.flatMap((process, index) =>
    process.memory.flatMap((kind) => {
      const first = lowerBound(kind.atMs, selection.fromMs);
      const end = lowerBound(kind.atMs, selection.toMs + 1);
      return end > first ? [memoryRow(run, index, kind, first, end)] : [];
    }),
  );
}

function memoryRow(run, index, kind, first, end) {
  const values = kind.values.subarray(first, end);
  const [firstBytes, lastBytes] = [values[0], values[values.length - 1]];
  const minutes = (kind.atMs[end - 1] - kind.atMs[first]) / 60_000;
  const change = lastBytes - firstBytes;
  const most = values.reduce((best, value) => Math.max(best, value), 0);
  return { index, title: run.processTitle(index), kind: kind.title, values, firstBytes, lastBytes, most, change, pace: minutes > 0 ? change / minutes : null, growth: kind.growth };
}

/** Return values as a line from their least to their most; flat where they hardly differ. */
function sparkline(values) {
  const least = values.reduce((best, value) => Math.min(best, value), Infinity);
  const most = values.reduce((best, value) => Math.max(best, value), 0);
  const range = Math.max(most - least, most * 0.01, 1);
  const step = LINE_WIDTH / Math.max(values.length - 1, 1);
  const points = [...values].map((value, at) => `${(at * step).toFixed(1)},${(LINE_HEIGHT - 3 - ((value - least) / range) * (LINE_HEIGHT - 6)).toFixed(1)}`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.join(" "));
  const picture = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["class", "sparkline"], ["width", LINE_WIDTH], ["height", LINE_HEIGHT], ["role", "img"], ["aria-label", `from ${bytes(least)} to ${bytes(most)}`]]) {
    picture.setAttribute(name, value);
  }
  picture.append(line);
  return picture;
}
