// The operators tab: of a torch window, the columns of key_averages().table(). Columns with nothing in them stay away.
// It reports the range of a window through `onrange(fromMs, toMs)`.

class Operators {
  constructor(node, run, onrange) {
    this.run = run;
    this.onrange = onrange;
    this.window = run.windows.length - 1;
    this.byShape = false;
    this.choice = element("select", { "aria-label": "Window", oninput: (event) => this.choose(Number(event.target.value)) });
    this.shapes = element("button", { type: "button", onclick: () => this.toggleShapes() }, "by shape");
    this.place = element("button", { type: "button", onclick: () => this.selectRange() }, "select its time");
    this.note = element("span", { class: "dim" });
    this.body = element("div", {});
    fillSelect(this.choice, run.windows.map((window, at) => [String(at), this.title(window)]));
    node.replaceChildren(...(run.windows.length ? [element("p", { class: "controls" }, this.choice, this.shapes, this.place, this.note), this.body] : [nothingTaken()]));
  }

  title(window) {
    const length = stepTime((window.end_ms - window.start_ms) / 1000);
    return `${elapsed(window.start_ms, 1)} · ${this.run.processTitle(window.process)} · ${counted(window.steps, "whole step")}, ${length}`;
  }

  choose(window) {
    this.window = window;
    this.show();
  }

  toggleShapes() {
    this.byShape = !this.byShape;
    this.show();
  }

  selectRange() {
    const { start_ms: from, end_ms: to } = this.run.windows[this.window];
    this.onrange(from, Math.max(to, from + this.run.slotMs));
  }

  show() {
    if (!this.run.windows.length) return;
    const window = this.run.windows[this.window];
    const rows = operatorRows(window.operators);
    const shown = this.byShape ? rows : withoutShapes(rows);
    this.choice.value = String(this.window);
    this.shapes.setAttribute("aria-pressed", String(this.byShape));
    this.note.textContent = [`by ${window.source}`, window.device, window.left_out ? `${grouped(window.left_out)} shapes with less time are left out` : ""].filter(Boolean).join(" · ");
    new Table(this.body, "Operators", operatorColumns(shown, this.byShape), null).show(shown);
  }
}

function nothingTaken() {
  const code = (text) => element("code", {}, text);
  return element("p", { class: "dim" }, "No torch window was taken of this run. ", code("profd run --torch-window"), " arms them, ", code("profd window"), " takes one.");
}

function operatorRows(columns) {
  const names = Object.keys(columns);
  return columns.name.map((_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
}

/** Return a row an operator, the sums over its shapes. */
function withoutShapes(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = JSON.stringify([row.name, row.device, row.is_annotation]);
    const sums = groups.get(key);
    if (!sums) groups.set(key, { ...row, input_shapes: "" });
    else for (const name of Object.keys(row)) if (typeof row[name] === "number") sums[name] += row[name];
  }
  return [...groups.values()];
}

function operatorColumns(rows, byShape) {
  const selfCpu = rows.reduce((sum, row) => sum + row.self_cpu_ns, 0);
  const selfCuda = rows.reduce((sum, row) => sum + (row.device === "cpu" || row.is_annotation ? 0 : row.self_cuda_ns), 0);
  const number = (title, value, write, first) => ({ title, numeric: true, first, value, cell: (row) => write(value(row)) });
  const share = (title, value, whole) => number(title, value, (time) => percent(time, whole));
  const has = (name) => rows.some((row) => row[name]);
  const cuda = has("self_cuda_ns") || has("cuda_total_ns");
  const memory = (title, name) => (has(name) ? [number(title, (row) => row[name], kibibytes)] : []);
  return [
    { title: "Name", value: (row) => row.name, cell: (row) => row.name, kind: "name", hint: (row) => row.name },
    number("Self CPU", (row) => row.self_cpu_ns, nanoseconds, cuda ? undefined : "descending"),
    share("Self CPU %", (row) => row.self_cpu_ns, selfCpu),
    number("CPU total", (row) => row.cpu_total_ns, nanoseconds),
    share("CPU total %", (row) => row.cpu_total_ns, selfCpu),
    number("CPU time avg", (row) => row.cpu_total_ns / row.calls, nanoseconds),
    ...(cuda ? [
      number("Self CUDA", (row) => row.self_cuda_ns, nanoseconds, "descending"),
      share("Self CUDA %", (row) => row.self_cuda_ns, selfCuda),
      number("CUDA total", (row) => row.cuda_total_ns, nanoseconds),
      number("CUDA time avg", (row) => row.cuda_total_ns / row.calls, nanoseconds),
    ] : []),
    ...memory("CPU Mem", "cpu_bytes"),
    ...memory("Self CPU Mem", "self_cpu_bytes"),
    ...memory("CUDA Mem", "cuda_bytes"),
    ...memory("Self CUDA Mem", "self_cuda_bytes"),
    number("# of Calls", (row) => row.calls, grouped),
    ...(byShape ? [{ title: "Input Shapes", value: (row) => row.input_shapes, cell: (row) => row.input_shapes, kind: "code", hint: (row) => row.input_shapes }] : []),
    ...(has("issuer") ? [{ title: "From (samples)", value: (row) => row.issuer, cell: (row) => row.issuer, kind: "code", hint: (row) => row.issuer }] : []),
    ...(has("flops") ? [number("Total MFLOPs", (row) => row.flops, (flops) => (flops ? (flops / 1e6).toFixed(3) : UNKNOWN))] : []),
  ];
}

/** Return a time as torch's tables write it. */
function nanoseconds(time) {
  if (time >= 1e9) return `${(time / 1e9).toFixed(3)}s`;
  return time >= 1e6 ? `${(time / 1e6).toFixed(3)}ms` : `${(time / 1e3).toFixed(3)}us`;
}

/** Return an amount of memory as torch's tables write it. */
function kibibytes(count) {
  for (const [power, unit] of [[3, "GB"], [2, "MB"], [1, "KB"]]) {
    if (Math.abs(count) >= 1024 ** power) return `${(count / 1024 ** power).toFixed(2)} ${unit}`;
  }
  return `${count} B`;
}
