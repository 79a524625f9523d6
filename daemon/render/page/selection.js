// The selection: which samples are meant, and how they are looked at. It lives in the address, so that a link says all.

const DEFAULTS = {
  from: null, // slots; null: the whole run
  to: null,
  process: "training", // training, all, or the index of a process
  thread: "main", // main, all, or = and the name of a thread
  phase: null, // index of a phase
  gpuIdle: false, // only the time for which the GPU was idle
  query: "",
  by: "line", // line, function
  inverted: false,
  coloring: "phase", // phase, module
  tab: "functions",
};
const CHOICES = { by: ["line", "function"], coloring: ["phase", "module"] };

class Selection {
  constructor(run) {
    this.run = run;
    Object.assign(this, DEFAULTS);
  }

  get isWholeRun() {
    return this.from === null;
  }

  get fromMs() {
    return this.isWholeRun ? 0 : this.from * this.run.slotMs;
  }

  get toMs() {
    return this.isWholeRun ? this.run.durationMs : Math.min(this.to * this.run.slotMs, this.run.durationMs);
  }

  /** Select the slots that hold a range of time; a range without a slot selects the whole run. */
  setRange(fromMs, toMs) {
    const from = Math.max(0, Math.round(Math.min(fromMs, toMs) / this.run.slotMs));
    const to = Math.min(this.run.slotCount, Math.round(Math.max(fromMs, toMs) / this.run.slotMs));
    const isRange = Number.isFinite(from) && Number.isFinite(to) && to > from;
    this.from = isRange ? from : null;
    this.to = isRange ? to : null;
  }

  takesProcess(index) {
    if (this.process === "all") return true;
    if (this.process === "training") return this.run.processes[index].role === "main";
    return this.process === index;
  }

  takesThread(thread) {
    if (!this.takesProcess(thread.process)) return false;
    return this.thread === "all" || (this.thread === "main" ? thread.main : `=${thread.name}` === this.thread);
  }

  threads() {
    return this.run.threads.filter((thread) => this.takesThread(thread));
  }

  /** Return what of a thread lies in the range, as [first, after the last] entry. */
  entriesOf(thread) {
    if (this.isWholeRun) return [0, thread.slots.length];
    return [lowerBound(thread.slots, this.from), lowerBound(thread.slots, this.to)];
  }

  /** Return the selection in words, for the line that says on what the numbers rest. */
  describe() {
    const isDefault = this.process === DEFAULTS.process && this.thread === DEFAULTS.thread;
    const words = isDefault ? ["main threads"] : [this.describeProcess(), this.describeThread()];
    if (this.phase !== null) words.push(this.run.phases[this.phase].name);
    if (this.gpuIdle) words.push(`GPU idle (below ${percent(this.run.gpuIdleBelow, 1)})`);
    words.push(this.isWholeRun ? "whole run" : this.describeRange());
    return words.join(" · ");
  }

  describeProcess() {
    if (this.process === "training") return "training processes";
    return this.process === "all" ? "all processes" : this.run.processTitle(this.process);
  }

  describeThread() {
    if (this.thread === "main") return "main threads";
    return this.thread === "all" ? "all threads" : `thread ${this.thread.slice(1)}`;
  }

  describeRange() {
    const decimals = decimalsFor(this.toMs - this.fromMs);
    return `${elapsed(this.fromMs, decimals)} – ${elapsed(this.toMs, decimals)}`;
  }

  /** Return the part of the address after `#`; empty where everything is as it opens. */
  toHash() {
    const words = new URLSearchParams();
    if (!this.isWholeRun) words.set("t", `${this.fromMs / 1000}-${(this.to * this.run.slotMs) / 1000}`);
    for (const name of ["process", "thread", "query", "by", "coloring", "tab"]) {
      if (this[name] !== DEFAULTS[name]) words.set(name, this[name]);
    }
    if (this.phase !== null) words.set("phase", this.run.phases[this.phase].name);
    if (this.inverted) words.set("inverted", "1");
    if (this.gpuIdle) words.set("gpu-idle", "1");
    return words.toString();
  }

  /** Take over an address; what it names but this run doesn't have is left as it opens. */
  readHash(hash) {
    Object.assign(this, DEFAULTS);
    const words = new URLSearchParams(hash.replace(/^#/, ""));
    const range = /^([\d.]+)-([\d.]+)$/.exec(words.get("t") ?? "");
    if (range) this.setRange(Number(range[1]) * 1000, Number(range[2]) * 1000);
    this.setProcess(words.get("process") ?? DEFAULTS.process);
    const thread = words.get("thread");
    if (thread === "all" || this.run.threads.some((each) => `=${each.name}` === thread)) this.thread = thread;
    for (const [name, allowed] of Object.entries(CHOICES)) {
      if (allowed.includes(words.get(name))) this[name] = words.get(name);
    }
    const phase = this.run.phases.findIndex((each) => each.name === words.get("phase"));
    this.phase = phase < 0 ? null : phase;
    this.query = words.get("query") ?? "";
    this.inverted = words.get("inverted") === "1";
    this.gpuIdle = words.get("gpu-idle") === "1" && this.run.gpus.length > 0;
    this.tab = words.get("tab") ?? DEFAULTS.tab;
  }

  setProcess(word) {
    const index = Number(word);
    if (word === "training" || word === "all") this.process = word;
    else if (word !== "" && index in this.run.processes) this.process = index;
  }
}
