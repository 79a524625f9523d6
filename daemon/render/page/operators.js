// The operators tab: a torch window in the columns of key_averages().table(), without those that have nothing in them.
// It reports the range of a window through `onrange(fromMs, toMs)`.

class Operators {
  constructor(node, run, onrange) {
    Object.assign(this, { run, window: run.windows.length - 1, byShape: false });
    this.choice = element("select", { "aria-label": "Window", oninput: (event) => this.show({ window: Number(event.target.value) }) });
    this.shapes = element("button", { type: "button", onclick: () => this.show({ byShape: !this.byShape }) }, "by shape");
    const selectRange = () => {
      const { start_ms: from, end_ms: to } = run.windows[this.window];
      onrange(from, Math.max(to, from + run.bucketMs));
    };
    const place = element("button", { type: "button", onclick: selectRange }, "select its time");
    this.note = element("span", { class: "dim" });
    [this.about, this.body] = [element("div"), element("div")];
    fillSelect(this.choice, run.windows.map((window, at) => {
      const length = stepTime((window.end_ms - window.start_ms) / 1000);
      return [String(at), `${elapsed(window.start_ms, 1)} · ${run.processTitle(window.process)} · ${counted(window.steps, "whole step")}, ${length}`];
    }));
    const code = (text) => element("code", {}, text);
    const nothing = element("p", { class: "dim" }, "No torch window was taken of this run. ", code("profd run --torch-window"), " arms them, ", code("profd window"), " takes one.");
    const controls = element("p", { class: "controls" }, this.choice, this.shapes, place, this.note);
    node.replaceChildren(...(run.windows.length ? [controls, this.about, this.body] : [nothing]));
  }

  show(choice, options) {
    Object.assign(this, choice, options);
    if (!this.run.windows.length) return;
    const window = this.run.windows[this.window];
    const names = Object.keys(window.operators);
    const rows = window.operators.name.map((_, at) => Object.fromEntries(names.map((name) => [name, window.operators[name][at]])));
    const shown = this.byShape ? rows : withoutShapes(rows);
    this.choice.value = String(this.window);
    this.shapes.setAttribute("aria-pressed", String(this.byShape));
    this.note.textContent = [`by ${window.source}`, window.left_out ? `${grouped(window.left_out)} shapes with less time are left out` : ""].filter(Boolean).join(" · ");
    this.about.replaceChildren(...window.about.map((text) => element("p", {}, text)));
    new Table(this.body, "Operators", operatorColumns(shown, this.byShape), null).show(shown, { pattern: this.pattern });
  }
}

/** Return a row for each operator, the sums over its shapes. */
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
  const share = (title, field, whole) => numberColumn(title, field, (time) => percent(time, whole));
  const has = (name) => rows.some((row) => row[name]);
  const cuda = has("self_cuda_ns") || has("cuda_total_ns");
  const memory = { "CPU Mem": "cpu_bytes", "Self CPU Mem": "self_cpu_bytes", "CUDA Mem": "cuda_bytes", "Self CUDA Mem": "self_cuda_bytes" };
  return [
    longColumn("Name", "name", "name"),
    numberColumn("Self CPU", "self_cpu_ns", nanoseconds, { first: cuda ? undefined : "descending" }),
    share("Self CPU %", "self_cpu_ns", selfCpu),
    numberColumn("CPU total", "cpu_total_ns", nanoseconds),
    share("CPU total %", "cpu_total_ns", selfCpu),
    numberColumn("CPU time avg", (row) => row.cpu_total_ns / row.calls, nanoseconds),
    ...(cuda ? [
      numberColumn("Self CUDA", "self_cuda_ns", nanoseconds, { first: "descending" }),
      share("Self CUDA %", "self_cuda_ns", selfCuda),
      numberColumn("CUDA total", "cuda_total_ns", nanoseconds),
      numberColumn("CUDA time avg", (row) => row.cuda_total_ns / row.calls, nanoseconds),
    ] : []),
    ...Object.entries(memory).filter(([, name]) => has(name)).map(([title, name]) => numberColumn(title, name, kibibytes)),
    numberColumn("# of Calls", "calls", grouped),
    ...(byShape ? [longColumn("Input Shapes", "input_shapes", "code")] : []),
    ...(has("issuer") ? [longColumn("From (samples)", "issuer", "code")] : []),
  ];
}

/** Return a time as torch's tables write it, as `kibibytes` does an amount of memory. */
function nanoseconds(time) {
  if (time >= 1e9) return `${(time / 1e9).toFixed(3)}s`;
  return time >= 1e6 ? `${(time / 1e6).toFixed(3)}ms` : `${(time / 1e3).toFixed(3)}us`;
}

function kibibytes(count) {
  for (const [power, unit] of [[3, "GB"], [2, "MB"], [1, "KB"]]) {
    if (Math.abs(count) >= 1024 ** power) return `${(count / 1024 ** power).toFixed(2)} ${unit}`;
  }
  return `${count} B`;
}
