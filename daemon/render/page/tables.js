// The tables of the report: their columns, and the rows of a selection.

const [LINE_WIDTH, LINE_HEIGHT] = [220, 26]; // pixels

function codeColumns() {
  const share = (title, field, first) => numberColumn(title, field, null, {
    first,
    cell: (row) => percent(row[field], row.whole),
    hint: (row) => counted(row.samples[field], "sample"),
    isWeak: (row) => isUncertain(row[field], row.whole, row.errors[field]),
  });
  return [
    share("self", "own", "descending"),
    share("total", "total"),
    pickColumn("function", "name", { hint: (row) => row.name }),
    column("where", "where", { cell: (row) => row.shortWhere, kind: "where", hint: (row) => row.path }),
    longColumn("line", "source", "code"),
  ];
}

function codeRow(run, counts, frame, sums, key) {
  const functionId = run.frameFunction[frame];
  const file = run.fileOf(functionId);
  const line = run.frameLine[frame];
  const suffix = line ? `:${line}` : "";
  return {
    functionId, name: run.functionName[functionId], source: run.frameSource[frame], isLibrary: file.library,
    where: file.module + suffix, shortWhere: shortPath(file.module) + suffix, path: file.path + suffix,
    own: sums.own[key], total: sums.total[key], whole: counts.total,
    samples: { own: sums.ownSamples[key], total: sums.totalSamples[key] },
    errors: { own: sums.ownErrors[key], total: sums.totalErrors[key] },
  };
}

function lineRows(run, counts) {
  const lines = counts.byLine();
  const seen = [...lines.total.keys()].filter((frame) => lines.total[frame] > 0);
  return seen.filter((frame) => lines.isShown[frame]).map((frame) => codeRow(run, counts, frame, lines, frame));
}

/** Return a row for each function, at the line of it that has the most time. */
function functionRows(run, counts) {
  const functions = counts.byFunction();
  const lines = counts.byLine();
  const hottest = new Map();
  run.frameFunction.forEach((functionId, frame) => {
    const best = hottest.get(functionId);
    if (lines.total[frame] > 0 && (best === undefined || lines.total[frame] > lines.total[best])) hottest.set(functionId, frame);
  });
  return [...hottest].filter(([functionId]) => functions.isShown[functionId]).sort(([a], [b]) => a - b).map(([functionId, frame]) => codeRow(run, counts, frame, functions, functionId));
}

/** Return the user's lines with the time of all stacks whose innermost frame of the user's they are, as [frame, ms]; a line is one whatever functions it has. */
function ownLines(run, counts) {
  const times = new Map();
  counts.byStack.forEach((time, stack) => {
    if (!counts.shows(stack)) return;
    let at = stack;
    while (at >= 0 && run.fileOf(run.frameFunction[run.stackFrame[at]]).library) at = run.stackParent[at];
    if (at < 0) return;
    const frame = run.lineFrame[run.stackFrame[at]];
    times.set(frame, (times.get(frame) ?? 0) + time);
  });
  return [...times].sort(([first, a], [second, b]) => b - a || first - second);
}

function processColumns() {
  const branch = (row) => {
    const name = pickButton(row.title);
    name.style.marginLeft = `${Math.min(row.depth, 12) * 18}px`;
    return name;
  };
  return [
    column("process", "order", { first: "ascending", cell: branch, kind: "name", text: (row) => row.title }),
    numberColumn("PID", "pid", String, { text: (row) => String(row.pid) }),
    numberColumn("CPU, cores", "cpu", significant),
    numberColumn("RSS, last", "rss", bytes),
    numberColumn("RSS, most", "rssMost", bytes),
    numberColumn("samples", "samples", grouped),
    column("top line of your code", "top", { kind: "where" }),
    numberColumn("from", "seen_ms", (ms) => elapsed(ms)),
    column("end", "end"),
    longColumn("command", "command", "code"),
  ];
}

function processRows(run, selection) {
  return processTree(run).map(([index, depth], order) => {
    const process = run.processes[index];
    const rss = valuesIn(process.rss, selection);
    const { from, to } = selection;
    const counts = new Counts(run, Object.assign(new Selection(run), { from, to, process: String(index), thread: "main" }));
    const [top] = ownLines(run, counts)[0] ?? [];
    return {
      ...process, index, depth, order, samples: counts.samples, end: describeEnd(process),
      cpu: meanOf([process.cpu], selection.fromMs, selection.toMs),
      rss: rss.at(-1) ?? null,
      rssMost: rss.length ? Math.max(...rss) : null,
      top: top === undefined ? "" : `${run.functionName[run.frameFunction[top]]} ${shortPath(run.fileOf(run.frameFunction[top]).module)}:${run.frameLine[top]}`,
    };
  });
}

/** Return the processes, parents before the children that they started, as [index, depth]. */
function processTree(run) {
  const children = new Map();
  run.processes.forEach(({ parent }, index) => {
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(index);
  });
  const visit = (index, depth) => [[index, depth], ...(children.get(index) ?? []).flatMap((child) => visit(child, depth + 1))];
  return (children.get(null) ?? []).flatMap((root) => visit(root, 0));
}

const describeEnd = ({ ended_ms, ending }) => (ended_ms === null ? "" : `${elapsed(ended_ms)}, ${ending}`);

/** Return the readings of a series in a selection, the last moment of it included. */
const valuesIn = ({ values, atMs }, { fromMs, toMs }) =>
  values.subarray(lowerBound(atMs, fromMs), lowerBound(atMs, toMs + 1));

function memoryColumns() {
  const signed = (count) => change(count, "bytes");
  return [
    pickColumn("process", "title"),
    column("memory", "kind"),
    column("over the selection", "most", { cell: (row) => sparkline(row.values) }),
    numberColumn("at first", "firstBytes", bytes),
    numberColumn("at last", "lastBytes", bytes),
    numberColumn("most", "most", bytes, { first: "descending" }),
    numberColumn("change", "change", signed),
    column("over the whole run", "growth", { kind: "growth" }),
  ];
}

function memoryRows(run, selection) {
  const rows = run.processes.flatMap((process, index) => process.memory.map((kind) => {
    const values = valuesIn(kind, selection);
    const [firstBytes, lastBytes] = [values[0], values.at(-1)];
    const change = lastBytes - firstBytes;
    return { index, title: run.processTitle(index), kind: kind.title, values, firstBytes, lastBytes, most: Math.max(...values), change, growth: kind.growth };
  }));
  return rows.filter((row) => row.values.length);
}

/** Return values as a line from their least to their most; flat where they hardly differ. */
function sparkline(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const range = Math.max(most - least, most * 0.01, 1);
  const step = LINE_WIDTH / Math.max(values.length - 1, 1);
  const points = [...values].map((value, at) => `${(at * step).toFixed(1)},${(LINE_HEIGHT - 3 - ((value - least) / range) * (LINE_HEIGHT - 6)).toFixed(1)}`);
  const label = `from ${bytes(least)} to ${bytes(most)}`;
  return element("svg", { class: "sparkline", width: LINE_WIDTH, height: LINE_HEIGHT, role: "img", "aria-label": label }, element("polyline", { points: points.join(" ") }));
}

function eventColumns(run) {
  const processOf = (row) => (row.process === null ? "" : run.processTitle(row.process));
  return [
    numberColumn("time", "at_ms", (ms) => elapsed(ms, 1), { first: "ascending", hint: (row) => run.wallClock(row.at_ms) }),
    pickColumn("event", "kind"),
    column("process", (row) => row.process ?? -1, { cell: processOf, text: processOf, kind: "where" }),
    longColumn("what", "text", "code"),
  ];
}
