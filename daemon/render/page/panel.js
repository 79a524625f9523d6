// The panel beside the flame graph: the selected function, and where in it the time goes, line by line.

const OVERVIEW_LINES = 8;

class Panel {
  constructor(node, run) {
    this.node = node;
    this.run = run;
  }

  /** Show a function, or what to do where none is selected; `node` is that of the tree, 0 for none. */
  show(functionId, counts, tree, node) {
    const parts = functionId === null ? this.overview(counts) : this.describe(functionId, counts, tree, node);
    this.node.replaceChildren(...parts);
  }

  /** Return what there is to say without a frame: the user's lines that take most, with what they call, and the keys. */
  overview(counts) {
    const key = (name) => element("kbd", {}, name);
    const lines = ownLines(this.run, counts).slice(0, OVERVIEW_LINES);
    return [
      element("h3", {}, lines.length ? "Your lines that take most" : "No frame selected"),
      this.ownTable(lines, counts.total),
      element("p", { class: "dim on-screen" }, "Click a frame to zoom into it and to see its lines here."),
      element("p", { class: "dim on-screen" }, "Keys in the graph: ", key("↑ ↓ ← →"), " move, ", key("Enter"), " zooms, ", key("⌫"), " goes back, ", key("Esc"), " shows all, ", key("/"), " searches."),
    ];
  }

  describe(functionId, counts, tree, node) {
    const file = this.run.fileOf(functionId);
    const { own, total, ownSamples, totalSamples } = counts.byFunction();
    const here = node > 0 && tree.functionOf(node) === functionId;
    return [
      element("h3", { title: this.run.functionName[functionId] }, this.run.functionName[functionId]),
      element("p", { class: "path" }, file.path || file.module),
      element(
        "dl",
        { class: "facts" },
        ...this.fact("self", own[functionId], counts.total, ownSamples[functionId]),
        ...this.fact("total", total[functionId], counts.total, totalSamples[functionId]),
        ...(here ? this.fact("in this frame", tree.total[node], counts.total, tree.samples[node]) : []),
      ),
      this.lines(functionId, counts),
    ];
  }

  ownTable(lines, whole) {
    const rows = lines.map(([frame, time]) => {
      const bar = element("i", { class: "bar" });
      bar.style.width = `${(100 * time) / lines[0][1]}%`;
      const { path, module } = this.run.fileOf(this.run.frameFunction[frame]);
      const place = `${module.split("/").pop()}:${this.run.frameLine[frame]}`;
      return element(
        "tr",
        {},
        element("td", { class: "number" }, percent(time, whole)),
        element("td", { class: "where", title: path || module }, place),
        element("td", { class: "code", title: this.run.frameSource[frame] }, bar, element("span", {}, this.run.frameSource[frame] ?? this.run.functionName[this.run.frameFunction[frame]])),
      );
    });
    return element("table", { class: "source own" }, element("caption", { class: "hidden" }, "Your lines, with what they call"), element("tbody", {}, ...rows));
  }

  fact(name, part, whole, samples) {
    return [element("dt", {}, name), element("dd", {}, element("b", {}, percent(part, whole)), ` ${counted(samples, "sample")}`)];
  }

  /** Return the lines of a function that were seen, in order, with the share at each. */
  lines(functionId, counts) {
    const { own, total, ownErrors, totalErrors } = counts.byLine();
    const seen = [];
    this.run.frameFunction.forEach((each, frame) => {
      if (each === functionId && total[frame] > 0) seen.push(frame);
    });
    seen.sort((a, b) => this.run.frameLine[a] - this.run.frameLine[b]);
    const most = Math.max(...seen.map((frame) => total[frame]), 1e-9);
    const body = element("tbody", {});
    seen.forEach((frame, at) => {
      const isGap = at > 0 && this.run.frameLine[frame] > this.run.frameLine[seen[at - 1]] + 1;
      if (isGap) body.append(element("tr", { class: "gap" }, element("td", { colspan: 4 }, "⋮")));
      body.append(this.line(frame, [own[frame], ownErrors[frame]], [total[frame], totalErrors[frame]], most, counts));
    });
    const head = element("tr", {}, ...["self", "total", "line"].map((title) => element("th", {}, title)), element("th", { class: "text" }, "source"));
    return element("table", { class: "source" }, element("thead", {}, head), body);
  }

  line(frame, [own, ownError], [total, totalError], most, counts) {
    const whole = counts.total;
    const bar = element("i", { class: "bar" });
    bar.style.width = `${(100 * total) / most}%`;
    const source = this.run.frameSource[frame];
    return element(
      "tr",
      {},
      element("td", { class: isUncertain(own, whole, ownError) ? "number weak" : "number" }, own ? percent(own, whole) : ""),
      element("td", { class: isUncertain(total, whole, totalError) ? "number weak" : "number" }, percent(total, whole)),
      element("td", { class: "number dim" }, this.run.frameLine[frame] ? String(this.run.frameLine[frame]) : UNKNOWN),
      element("td", { class: "code", title: source }, bar, element("span", {}, source ?? "source not stored")),
    );
  }
}
