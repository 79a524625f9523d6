// The tables of the page: what their columns are, and the rows that a selection gives them.

function shareColumn(title, field, first) {
  return {
    title,
    numeric: true,
    first,
    value: (row) => row[field],
    cell: (row) => percent(row[field], row.whole),
    hint: (row) => counted(row.samples[field], "sample"),
    isWeak: (row) => isUncertain(row[field], row.whole, row.errors[field]),
  };
}

function codeColumns() {
  return [
    shareColumn("self", "own", "descending"),
    shareColumn("total", "total"),
    { title: "function", value: (row) => row.name, cell: (row) => pickButton(row.name), kind: "name", hint: (row) => row.name },
    { title: "where", value: (row) => row.where, cell: (row) => row.shortWhere, kind: "where", hint: (row) => row.path },
    { title: "line", value: (row) => row.source ?? "", cell: (row) => row.source ?? "", kind: "code", hint: (row) => row.source },
  ];
}

function codeRow(run, counts, frame, sums, key) {
  const functionId = run.frameFunction[frame];
  const file = run.fileOf(functionId);
  const line = run.frameLine[frame];
  const suffix = line ? `:${line}` : "";
  return {
    functionId,
    own: sums.own[key],
    total: sums.total[key],
    samples: { own: sums.ownSamples[key], total: sums.totalSamples[key] },
    whole: counts.total,
    errors: { own: sums.ownErrors[key], total: sums.totalErrors[key] },
    name: run.functionName[functionId],
    where: file.module + suffix,
    shortWhere: shortPath(file.module) + suffix,
    path: file.path + suffix,
    source: run.frameSource[frame],
    isLibrary: file.library,
  };
}

function lineRows(run, counts) {
  const lines = counts.byLine();
  const rows = [];
  lines.total.forEach((time, frame) => {
    if (time > 0) rows.push(codeRow(run, counts, frame, lines, frame));
  });
  return rows;
}

/** Return a row a function, each at the line of it that it mostly stood at. */
function functionRows(run, counts) {
  const functions = counts.byFunction();
  const lines = counts.byLine();
  const hottest = new Int32Array(run.functionName.length).fill(-1);
  run.frameFunction.forEach((functionId, frame) => {
    const best = hottest[functionId];
    if (lines.total[frame] > 0 && (best < 0 || lines.total[frame] > lines.total[best])) hottest[functionId] = frame;
  });
  const rows = [];
  hottest.forEach((frame, functionId) => {
    if (frame >= 0) rows.push(codeRow(run, counts, frame, functions, functionId));
  });
  return rows;
}

function processColumns() {
  const number = (title, field, write) => ({
    title,
    numeric: true,
    value: (row) => row[field] ?? -1,
    cell: (row) => (row[field] === null ? UNKNOWN : write(row[field])),
  });
  return [
    { title: "process", first: "ascending", value: (row) => row.order, cell: (row) => branch(row), kind: "name" },
    number("PID", "pid", String),
    number("CPU, cores", "cpu", significant),
    number("RSS, last", "rss", bytes),
    number("RSS, most", "rssMost", bytes),
    number("samples", "samples", grouped),
    { title: "top line of your code", value: (row) => row.top, cell: (row) => row.top, kind: "where" },
    { title: "from", numeric: true, value: (row) => row.seen_ms, cell: (row) => elapsed(row.seen_ms) },
    { title: "end", value: (row) => row.end, cell: (row) => row.end },
    { title: "command", value: (row) => row.command, cell: (row) => row.command, kind: "code", hint: (row) => row.command },
  ];
}

function branch(row) {
  const name = pickButton(row.title);
  name.style.marginLeft = `${Math.min(row.depth, 12) * 18}px`;
  return name;
}

function processRows(run, selection) {
  return processTree(run).map(({ index, depth }, order) => {
    const process = run.processes[index];
    const rss = valuesIn(process.rss, selection);
    const counts = countsOfProcess(run, selection, index);
    return {
      ...process,
      index,
      depth,
      order,
      cpu: meanOf([process.cpu], selection.fromMs, selection.toMs),
      rss: rss.length ? rss[rss.length - 1] : null,
      rssMost: rss.length ? Math.max(...rss) : null,
      samples: counts.samples,
      top: topLine(run, counts),
      end: describeEnd(process),
    };
  });
}

/** Return the processes as they start each other: parents before their children. */
function processTree(run) {
  const children = new Map();
  run.processes.forEach((process, index) => {
    const parent = process.parent ?? -1;
    children.set(parent, [...(children.get(parent) ?? []), index]);
  });
  const found = [];
  const visit = (index, depth) => {
    found.push({ index, depth });
    (children.get(index) ?? []).forEach((child) => visit(child, depth + 1));
  };
  (children.get(-1) ?? []).forEach((root) => visit(root, 0));
  return found;
}

function valuesIn(series, selection) {
  const first = lowerBound(series.atMs, selection.fromMs);
  return [...series.values.slice(first, lowerBound(series.atMs, selection.toMs + 1))];
}

function countsOfProcess(run, selection, index) {
  const own = new Selection(run);
  Object.assign(own, { from: selection.from, to: selection.to, process: String(index), thread: "main" });
  return new Counts(run, own);
}

/** Return the user's own lines with the time that is owed to them, [frame, ms], the largest first. */
function ownLines(run, counts) {
  const owed = new Map();
  counts.byStack.forEach((time, stack) => {
    const frame = time ? userFrame(run, stack) : null;
    if (frame !== null) owed.set(frame, (owed.get(frame) ?? 0) + time);
  });
  return [...owed].sort(([first, a], [second, b]) => b - a || first - second);
}

/** Return the line of the user's own code that most samples are owed to: the innermost one of each stack counts. */
function topLine(run, counts) {
  const [best] = ownLines(run, counts)[0] ?? [];
  if (best === undefined) return "";
  const functionId = run.frameFunction[best];
  return `${run.functionName[functionId]} ${shortPath(run.fileOf(functionId).module)}:${run.frameLine[best]}`;
}

/** Return the innermost frame of a stack that is no library's; null where there is none. */
function userFrame(run, stack) {
  for (let at = stack; at >= 0; at = run.stackParent[at]) {
    const frame = run.stackFrame[at];
    if (!run.fileOf(run.frameFunction[frame]).library) return frame;
  }
  return null;
}

function describeEnd(process) {
  if (process.ended_ms === null) return "";
  const at = elapsed(process.ended_ms);
  if (process.exit_signal !== null) return `${at}, signal ${process.exit_signal}`;
  return process.exit_code === null ? at : `${at}, code ${process.exit_code}`;
}

function eventColumns(run) {
  return [
    { title: "time", numeric: true, first: "ascending", value: (row) => row.at_ms, cell: (row) => elapsed(row.at_ms, 1), hint: (row) => run.wallClock(row.at_ms) },
    { title: "event", value: (row) => row.kind, cell: (row) => pickButton(row.kind), kind: "name" },
    { title: "process", value: (row) => row.process ?? -1, cell: (row) => (row.process === null ? "" : run.processTitle(row.process)), kind: "where" },
    { title: "what", value: (row) => row.text, cell: (row) => row.text, kind: "code", hint: (row) => row.text },
  ];
}

function eventRows(run, selection) {
  return run.events.filter((event) => selection.isWholeRun || (event.at_ms >= selection.fromMs && event.at_ms < selection.toMs));
}
