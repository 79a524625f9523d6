// The report: puts the parts together, and shows everything again when the selection changes.

const EVENT_MARGIN_MS = 5_000;

/** The phases with their letters, colors and shares of the selection. A press keeps one phase, and reports it; null: all. */
class Legend {
  constructor(node, run, onphase) {
    Object.assign(this, { node, run, onphase });
    // The order is that of the whole run, so that nothing jumps while a range is dragged.
    this.usual = new Counts(run, new Selection(run)).byPhase();
    this.order = [...run.phases.keys()].sort((a, b) => this.usual[b] - this.usual[a] || a - b);
  }

  show(selection, counts) {
    const ofAllPhases = () => Object.assign(new Selection(selection.run), selection, { phase: null });
    const whole = selection.phase === null ? counts : new Counts(this.run, ofAllPhases());
    const times = whole.byPhase();
    const samples = whole.byPhase(whole.samplesByStack);
    const shown = this.order.filter((phase) => times[phase] > 0 || this.usual[phase] > 0 || phase === selection.phase);
    this.node.replaceChildren(...shown.map((phase) => {
      const { name, letter, color } = this.run.phases[phase];
      const isOnly = phase === selection.phase;
      const swatch = element("i", { class: "swatch" }, letter);
      Object.assign(swatch.style, { background: color, color: inkOn(parseColor(color)) });
      const title = `only ${name}: ${counted(samples[phase], "sample")}`;
      const properties = { type: "button", "aria-pressed": String(isOnly), title, onclick: () => this.onphase(isOnly ? null : phase) };
      const step = whole.step?.[name] ? element("span", { class: "dim", title: "of an average step" }, stepTime(whole.step[name])) : null;
      return element("button", properties, swatch, name, element("b", {}, percent(times[phase], whole.total)), step);
    }));
  }
}

class Page extends AddressedPage {
  constructor(run) {
    super();
    Object.assign(this, { run, selection: new Selection(run), trees: new Map() });
    const tooltip = new Tooltip(byId("tooltip"));
    const onrange = (from, to) => this.change(() => this.selection.setRange(from, to));
    this.timeline = new Timeline(byId("timeline"), tooltip, run, onrange);
    this.graph = new FlameGraph(byId("flame"), tooltip, run, (node) => {
      this.writeAddress();
      this.showPanel();
      this.speak(node);
    });
    this.canvases = [this.timeline.canvas, this.graph.canvas];
    this.panel = new Panel(byId("panel"), run, (of) => this.showSandwich(of));
    this.legend = new Legend(byId("legend"), run, (phase) => this.select({ phase }));
    this.tabs = new Tabs((tab) => this.select({ tab }));
    this.makeTables(onrange);
    this.makeFilters();
    byId("query").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      this.select({ query: "" });
      byId("flame").focus();
    });
    showWaits();
    this.readAddress();
  }

  makeTables(onrange) {
    const { run, selection } = this;
    const pickFunction = ({ functionId }) => {
      const { tree } = this.graph;
      if (selection.graph === "sandwich") this.showSandwich(functionId);
      else this.graph.zoomOut(tree.largest((each) => each === functionId, (node) => tree.total[node]));
      byId("panel").scrollIntoView({ block: "nearest" });
    };
    const pickProcess = (row) => this.select({ process: String(row.index), rank: "all", thread: "all" });
    const pickEvent = (row) => onrange(row.at_ms - EVENT_MARGIN_MS, row.at_ms + EVENT_MARGIN_MS);
    const table = (view, caption, columns, onpick, rows) => [new Table(byId(`view-${view}`), caption, columns, onpick), rows];
    const isSelected = ({ at_ms: ms }) => selection.isWholeRun || (ms >= selection.fromMs && ms < selection.toMs);
    this.tables = {
      functions: table("functions", "Hot functions", codeColumns(), pickFunction, () => functionRows(run, this.counts)),
      lines: table("lines", "Hot lines", codeColumns(), pickFunction, () => lineRows(run, this.counts)),
      processes: table("processes", "Processes", processColumns(), pickProcess, () => processRows(run, selection)),
      operators: [new Operators(byId("view-operators"), run, onrange), () => null],
      memory: table("memory", "Memory", memoryColumns(), pickProcess, () => memoryRows(run, selection)),
      events: table("events", "Events", eventColumns(run), pickEvent, () => run.events.filter(isSelected)),
    };
  }

  makeFilters() {
    const { run } = this;
    const each = (rows, field) => [...new Set(rows.map((row) => row[field]))];
    const roles = each(run.processes, "role").filter((role) => role !== "main");
    const processes = run.processes.map((_, index) => [String(index), run.processTitle(index)]);
    fillSelect(byId("process"), [["training", "training processes"], ...roles.map((role) => [role, `${role}s`]), ["all", "all processes"], ...processes]);
    const ranks = each(run.processes, "rank").filter((rank) => rank !== null).sort((a, b) => a - b);
    fillSelect(byId("rank"), [["all", "all ranks"], ...ranks.map((rank) => [String(rank), `rank ${rank}`])]);
    byId("rank").hidden = !ranks.length;
    const names = each(run.threads, "name").sort();
    fillSelect(byId("thread"), [["main", "main threads"], ["other", "other threads"], ["all", "all threads"], ...names.map((name) => [`=${name}`, name])]);
    const seen = run.phasesSeen();
    const phases = this.legend.order.filter((phase) => seen.has(phase));
    fillSelect(byId("phase"), [["", "all phases"], ...phases.map((phase) => [String(phase), `${run.phases[phase].letter} ${run.phases[phase].name}`])]);
    const onInput = (id, apply) => byId(id).addEventListener("input", (event) => this.change(() => apply(event.target.value)));
    onInput("process", (value) => this.selection.setProcess(value));
    onInput("phase", (value) => Object.assign(this.selection, { phase: value === "" ? null : Number(value) }));
    for (const name of ["rank", "thread", "by", "graph", "coloring", "query"]) onInput(name, (value) => Object.assign(this.selection, { [name]: value }));
    for (const [name, id] of Object.entries({ inverted: "inverted", ...CONDITIONS })) {
      byId(id).addEventListener("click", () => this.change(() => Object.assign(this.selection, { [name]: !this.selection[name] })));
      byId(id).hidden = name in CONDITIONS && !run.parts.includes(id);
    }
    byId("imports").addEventListener("click", () => this.select({ imports: !this.selection.showsImports }));
    byId("imports").hidden = !seen.has(run.importPhase);
    byId("reset").addEventListener("click", () => this.timeline.clear());
  }

  /** Change the selection, and show what it is then; several changes before the next picture are shown once. */
  change(apply) {
    apply();
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.update();
      this.writeAddress();
    });
  }

  select(fields) { this.change(() => Object.assign(this.selection, fields)); }

  readAddress() {
    this.selection.readHash(location.hash);
    this.update();
    this.graph.goTo(this.selection.frame);
    this.showPanel();
  }

  writeAddress() {
    this.selection.frame = this.graph.address();
    this.setHash(this.selection.toHash());
  }

  update() {
    const { run, selection } = this;
    this.counts = new Counts(run, selection);
    this.showFilters();
    this.legend.show(selection, this.counts);
    const matches = this.search(selection.query, run);
    this.timeline.show(selection, this.pattern);
    if (matches) byId("found").textContent = `${percent(this.counts.matching(matches), this.counts.total)} matched`;
    this.graph.show(this.takeTree(), { coloring: selection.coloring, matches, ...this.graphActions() });
    this.showPanel();
    const [table, rows] = this.tables[this.tabs.show(selection.tab)] ?? [];
    table?.show(rows(), { pattern: this.pattern });
    document.body.dataset.samples = String(this.counts.samples);
  }

  /** Return the call tree of the selection; the same object as long as its nodes mean the same. */
  takeTree() {
    const { run, selection, counts } = this;
    const byLine = selection.by === "line";
    if (selection.graph === "merged") {
      const shape = `${selection.by} ${selection.inverted}`;
      if (!this.trees.has(shape)) this.trees.set(shape, new Tree(run, byLine, selection.inverted));
      this.trees.get(shape).fill(counts);
      return this.trees.get(shape);
    }
    if (selection.graph === "sandwich") selection.of ??= this.functionInSight();
    const shape = selection.basis();
    if (this.other?.shape !== shape) {
      const tree = selection.graph === "time" ? new TimeTree(run, byLine, counts, selection) : new SandwichTree(run, byLine, counts, selection.of);
      this.other = { shape, tree };
    }
    return this.other.tree;
  }

  showSandwich(of) { this.select({ graph: "sandwich", of }); }

  /** Return the function that is selected, or else the one with the most time of its own. */
  functionInSight() {
    const { tree, selected } = this.graph;
    if (selected > 0) return tree.functionOf(selected);
    const { own } = this.counts.byFunction();
    return own.indexOf(Math.max(...own));
  }

  /** Return what the graph does beside zooming. */
  graphActions() {
    const onsandwich = (of) => this.showSandwich(of);
    if (this.selection.graph !== "sandwich") return { onsandwich };
    const onopen = (node) => this.showSandwich(this.graph.tree.functionOf(node));
    return { onsandwich, onopen, onclose: () => this.select({ graph: "merged", of: null }) };
  }

  /** Undo what shows less: the zoom, then the search, then the range. */
  goBack() {
    if (this.graph.zoomed || this.selection.graph === "sandwich") super.goBack();
    else if (this.selection.query) this.select({ query: "" });
    else this.timeline.clear();
  }

  showPanel() { this.panel.show(this.counts, this.graph.tree, this.graph.selected, this.pattern); }

  showFilters() {
    const { selection } = this;
    // An option that an address names but the list does not have is added.
    const choose = (select, value, text) => {
      if (![...select.options].some((option) => option.value === value)) select.append(element("option", { value }, text));
      select.value = value;
    };
    for (const name of ["rank", "thread", "by", "graph", "coloring"]) byId(name).value = selection[name];
    byId("inverted").disabled = selection.graph !== "merged";
    byId("imports").setAttribute("aria-pressed", String(selection.showsImports));
    choose(byId("process"), selection.process, selection.describeProcess());
    choose(byId("phase"), String(selection.phase ?? ""), selection.phase === null ? "" : this.run.phases[selection.phase].name);
    if (byId("query").value !== selection.query) byId("query").value = selection.query;
    for (const [name, id] of Object.entries({ inverted: "inverted", ...CONDITIONS })) byId(id).setAttribute("aria-pressed", String(selection[name]));
    byId("reset").hidden = selection.isWholeRun;
    const { samples, total, hiddenTime } = this.counts;
    const hidden = hiddenTime ? ` · imports hidden: ${percent(hiddenTime, total)}` : "";
    byId("basis").textContent = `${selection.describe()} · ${counted(samples, "sample")}${hidden}`;
    byId("basis").title = `${this.run.wallClock(selection.fromMs)} – ${this.run.wallClock(selection.toMs)} by the clock`;
  }
}

openPacked((extract) => new Page(new Run(extract)));
