// The selection: which samples are shown, and how. It lives in the address, so that a link says all.

const DEFAULTS = {
  from: null, // buckets; null: the whole run
  to: null,
  process: "training", // training, all, a role, or indices of processes: 3 or 3,4
  rank: "all", // all, or a rank
  thread: "main", // main, other, all, or = and the name of a thread
  phase: null, // index of a phase
  gpuIdle: false, // only the time for which the GPU was idle
  onCpu: false, // only the time for which the thread ran more than it waited
  frame: "", // the place in the flame graph; see FlameGraph.address
  query: "",
  by: "line", // line, function
  inverted: false,
  imports: null, // shown or not; null: as the run has it
  graph: "merged", // merged, time: in order of time, sandwich: callers and callees of one function
  of: null, // the function that the sandwich is of
  coloring: "phase", // phase, module
  tab: "functions",
};
const CONDITIONS = { gpuIdle: "gpu-idle", onCpu: "on-cpu" };
const CHOICES = { graph: ["merged", "time", "sandwich"], by: ["line", "function"], coloring: ["phase", "module"] };

class Selection {
  constructor(run) { Object.assign(this, { run, ...DEFAULTS }); }

  get showsImports() { return this.phase !== null || (this.imports ?? this.run.showsImports); }
  /** Whether all that the main threads of the training do in the run is selected. */
  get isWholeTraining() {
    const isAll = ["process", "rank", "thread"].every((name) => this[name] === DEFAULTS[name]);
    return this.isWholeRun && isAll && this.phase === null && !this.gpuIdle && !this.onCpu;
  }

  get isWholeRun() { return this.from === null; }
  get fromMs() { return this.isWholeRun ? 0 : this.from * this.run.bucketMs; }

  get toMs() {
    return this.isWholeRun ? this.run.durationMs : Math.min(this.to * this.run.bucketMs, this.run.durationMs);
  }

  /** Select the buckets that hold a range of time; a range without a bucket selects the whole run. */
  setRange(fromMs, toMs) {
    const from = Math.max(0, Math.round(Math.min(fromMs, toMs) / this.run.bucketMs));
    const to = Math.min(this.run.bucketCount, Math.round(Math.max(fromMs, toMs) / this.run.bucketMs));
    const isRange = Number.isFinite(from) && Number.isFinite(to) && to > from;
    [this.from, this.to] = isRange ? [from, to] : [null, null];
  }

  takesProcess(index) {
    const { role, rank } = this.run.processes[index];
    if (this.rank !== "all" && String(rank) !== this.rank) return false;
    if (this.process === "all") return true;
    if (this.process === "training") return role === "main";
    return this.process === role || this.process.split(",").includes(String(index));
  }

  threads() {
    const isNamed = { all: () => true, main: (thread) => thread.main, other: (thread) => !thread.main }[this.thread] ?? ((thread) => `=${thread.name}` === this.thread);
    return this.run.threads.filter((thread) => this.takesProcess(thread.process) && isNamed(thread));
  }

  /** Return the columns of a thread that hold what is asked for: all of it, or the part for which conditions held. */
  partOf(thread) {
    const asked = Object.keys(CONDITIONS).filter((name) => this[name]).map((name) => CONDITIONS[name]);
    return asked.length ? thread.parts[this.run.parts.indexOf(asked.join(" "))] : thread;
  }

  /** Return what of a thread lies in the range, as [first, after the last] entry. */
  entriesOf(thread) {
    if (this.isWholeRun) return [0, thread.buckets.length];
    return [lowerBound(thread.buckets, this.from), lowerBound(thread.buckets, this.to)];
  }

  /** Return the selection in words, for the line that says on what the numbers rest. */
  describe() {
    const isDefault = this.process === DEFAULTS.process && this.thread === DEFAULTS.thread;
    const thread = this.thread.startsWith("=") ? `thread ${this.thread.slice(1)}` : `${this.thread} threads`;
    const words = isDefault ? ["main threads"] : [this.describeProcess(), thread];
    if (this.phase !== null) words.push(this.run.phases[this.phase].name);
    if (this.rank !== "all") words.push(`rank ${this.rank}`);
    if (this.onCpu) words.push("on CPU");
    if (this.gpuIdle) words.push(`GPU idle (below ${percent(this.run.gpuIdleBelow, 1)})`);
    const decimals = decimalsFor(this.toMs - this.fromMs);
    words.push(this.isWholeRun ? "whole run" : `${elapsed(this.fromMs, decimals)} – ${elapsed(this.toMs, decimals)}`);
    return words.join(" · ");
  }

  describeProcess() {
    if (this.process === "training") return "training processes";
    if (this.process === "all") return "all processes";
    const indices = this.process.split(",");
    if (!(indices[0] in this.run.processes)) return `${this.process}s`;
    return indices.length > 1 ? `${indices.length} processes` : this.run.processTitle(Number(this.process));
  }

  /** Return what the shape of a graph depends on, as a word. */
  basis() {
    const { query, coloring, tab, frame } = DEFAULTS;
    return Object.assign(new Selection(this.run), this, { query, coloring, tab, frame }).toHash();
  }

  /** Return the part of the address after `#`; empty where everything is as it opens. */
  toHash() {
    const words = new URLSearchParams();
    if (!this.isWholeRun) words.set("t", `${this.fromMs / 1000}-${(this.to * this.run.bucketMs) / 1000}`);
    const texts = ["process", "rank", "thread", "query", "by", "coloring", "graph", "of", "tab", "frame"];
    for (const name of texts) if (this[name] !== DEFAULTS[name]) words.set(name, this[name]);
    if (this.phase !== null) words.set("phase", this.run.phases[this.phase].name);
    if (this.inverted) words.set("inverted", "1");
    if (this.imports !== null) words.set("imports", String(Number(this.imports)));
    for (const [name, word] of Object.entries(CONDITIONS)) if (this[name]) words.set(word, "1");
    return String(words);
  }

  /** Take over an address; what it names but this run doesn't have is left as it opens. */
  readHash(hash) {
    Object.assign(this, DEFAULTS);
    const words = new URLSearchParams(hash.replace(/^#/, ""));
    const range = /^([\d.]+)-([\d.]+)$/.exec(words.get("t") ?? "");
    if (range) this.setRange(Number(range[1]) * 1000, Number(range[2]) * 1000);
    this.setProcess(words.get("process") ?? DEFAULTS.process);
    const [thread, rank] = ["thread", "rank"].map((name) => words.get(name));
    if (this.run.processes.some((each) => String(each.rank) === rank)) this.rank = rank;
    if (["all", "other"].includes(thread) || this.run.threads.some((each) => `=${each.name}` === thread)) this.thread = thread;
    const known = Object.keys(CHOICES).filter((name) => CHOICES[name].includes(words.get(name)));
    for (const name of known) this[name] = words.get(name);
    const phase = this.run.phases.findIndex((each) => each.name === words.get("phase"));
    this.phase = phase < 0 ? null : phase;
    for (const name of ["query", "frame", "tab"]) this[name] = words.get(name) ?? DEFAULTS[name];
    this.inverted = words.get("inverted") === "1";
    if (words.has("imports")) this.imports = words.get("imports") === "1";
    if (words.get("of") in this.run.functionName) this.of = Number(words.get("of"));
    for (const [name, word] of Object.entries(CONDITIONS)) this[name] = words.get(word) === "1" && this.run.parts.includes(word);
  }

  setProcess(word) {
    const isKnown = word.split(",").every((index) => /^\d+$/.test(index) && Number(index) in this.run.processes);
    const isRole = this.run.processes.some((process) => process.role === word);
    if (["training", "all"].includes(word) || isRole || isKnown) this.process = word;
  }
}
