// The panel beside the flame graph: the selected function, and where in it the time goes, line by line.

const OVERVIEW_LINES = 8;

class Panel {
  constructor(node, run, onsandwich) { Object.assign(this, { node, run, onsandwich }); }

  /** Show the function of a node of the tree; of all, node 0, an overview of the lines that a search finds. */
  show(counts, tree, node, pattern) {
    this.node.replaceChildren(...(node > 0 || tree.growsUp ? this.describe(counts, tree, node) : this.overview(counts, pattern)));
  }

  /** Return the overview: the user's lines that take most, with what they call, and the keys. */
  overview(counts, pattern) {
    const key = (name) => element("kbd", {}, name);
    const lines = ownLines(this.run, counts).filter(([frame]) => !pattern || this.finds(frame, pattern)).slice(0, OVERVIEW_LINES);
    return [
      element("h3", {}, lines.length ? "Your lines that take most" : pattern ? "No line of yours matches" : "No frame selected"),
      this.ownTable(lines, counts),
      element("p", { class: "dim on-screen" }, "Click a frame to zoom into it and to see its lines here."),
      element("p", { class: "dim on-screen" }, "Keys in the graph: ", key("↑ ↓ ← →"), " move, ", key("Enter"), " zooms, ", key("⌫"), " goes back, ", key("Esc"), " shows all, ", key("s"), " shows callers and callees, ", key("/"), " searches."),
    ];
  }

  describe(counts, tree, node) {
    const functionId = tree.functionOf(node);
    const file = this.run.fileOf(functionId);
    const name = this.run.functionName[functionId];
    const { own, total, ownSamples, totalSamples } = counts.byFunction();
    const fact = (title, time, samples) => [title, percent(time, counts.total), ` ${counted(samples, "sample")}`];
    return [
      element("h3", { title: name }, name),
      element("p", { class: "path" }, file.path || file.module),
      factList([
        fact("self", own[functionId], ownSamples[functionId]),
        fact("total", total[functionId], totalSamples[functionId]),
        ["in this frame", ...tree.amount(node)],
      ]),
      element("p", { class: "on-screen" }, element("button", { type: "button", onclick: () => this.onsandwich(functionId) }, "callers and callees")),
      this.lines(functionId, counts),
    ];
  }

  finds(frame, pattern) {
    const { module } = this.run.fileOf(this.run.frameFunction[frame]);
    const texts = [this.run.functionName[this.run.frameFunction[frame]], `${module}:${this.run.frameLine[frame]}`, this.run.frameSource[frame] ?? ""];
    return texts.some((text) => pattern.test(text));
  }

  /** Return the table of lines: their shares, and their parts of an average step if these are known. */
  ownTable(lines, { total: whole, step }) {
    const rows = lines.map(([frame, time]) => {
      const { path, module } = this.run.fileOf(this.run.frameFunction[frame]);
      const place = `${module.split("/").pop()}:${this.run.frameLine[frame]}`;
      const where = element("td", { class: "where", title: path || module }, place);
      const seconds = step?.[`${module}:${this.run.frameLine[frame]}`];
      const ofStep = step ? element("td", { class: "number dim", title: "of an average step" }, seconds ? stepTime(seconds) : UNKNOWN) : null;
      const source = this.source(frame, time / lines[0][1], this.run.functionName[this.run.frameFunction[frame]]);
      return element("tr", {}, element("td", { class: "number" }, percent(time, whole)), ofStep, where, source);
    });
    return element("table", { class: "source own" }, element("caption", { class: "hidden" }, "Your lines, with what they call"), element("tbody", {}, ...rows));
  }

  /** Return the lines of a function that were seen, in order, with the share at each. */
  lines(functionId, counts) {
    const { own, total, ownErrors, totalErrors } = counts.byLine();
    const { frameFunction, frameLine } = this.run;
    const seen = [...frameFunction.keys()].filter((frame) => frameFunction[frame] === functionId && total[frame] > 0);
    seen.sort((a, b) => frameLine[a] - frameLine[b]);
    const most = Math.max(...seen.map((frame) => total[frame]), 1e-9);
    const whole = counts.total;
    const share = (time, error, text) => element("td", { class: isUncertain(time, whole, error) ? "number weak" : "number" }, text);
    const rows = seen.flatMap((frame, at) => {
      const gap = element("tr", { class: "gap" }, element("td", { colspan: 4 }, "⋮"));
      const cells = [
        share(own[frame], ownErrors[frame], own[frame] ? percent(own[frame], whole) : ""),
        share(total[frame], totalErrors[frame], percent(total[frame], whole)),
        element("td", { class: "number dim" }, frameLine[frame] ? String(frameLine[frame]) : UNKNOWN),
        this.source(frame, total[frame] / most, "source not stored"),
      ];
      return [...(at > 0 && frameLine[frame] > frameLine[seen[at - 1]] + 1 ? [gap] : []), element("tr", {}, ...cells)];
    });
    const head = element("tr", {}, ...["self", "total", "line"].map((title) => element("th", {}, title)), element("th", { class: "text" }, "source"));
    return element("table", { class: "source" }, element("thead", {}, head), element("tbody", {}, ...rows));
  }

  /** Return the cell of a line of code, with a bar behind it as wide as a share; or a text where it is not known. */
  source(frame, share, otherwise) {
    const bar = element("i", { class: "bar" });
    bar.style.width = `${100 * share}%`;
    const source = this.run.frameSource[frame];
    return element("td", { class: "code", title: source }, bar, element("span", {}, source ?? otherwise));
  }
}
