// Counting: time of a selection by stack, then by phase, function, line and node of a tree.
// Shares are shares of time. Samples are counted beside it: they are what a share rests on.

class Counts {
  constructor(run, selection) {
    this.run = run;
    this.byStack = new Float64Array(run.stackCount); // ms, weighted
    this.samplesByStack = new Float64Array(run.stackCount);
    this.total = 0;
    this.samples = 0;
    this.squares = 0;
    this.phase = selection.phase;
    this.doubt = new Doubt(run);
    for (const thread of selection.threads()) this.addThread(thread, selection);
  }

  addThread(thread, selection) {
    const { stackPhase } = this.run;
    const [first, end] = selection.entriesOf(thread);
    const { timesMs, samples: counted } = selection.partOf(thread);
    const weight = this.run.weightOf(thread.process, selection.fromMs, selection.toMs);
    let [time, samples] = [0, 0];
    let [everyTime, everySample] = [0, 0];
    const stacks = [];
    for (let at = first; at < end; at += 1) {
      const stack = thread.stacks[at];
      if (this.doubt.tellsOrder && (timesMs[at] || counted[at])) stacks.push(stack);
      everyTime += timesMs[at] * weight;
      everySample += counted[at];
      if (selection.phase !== null && stackPhase[stack] !== selection.phase) continue;
      this.byStack[stack] += timesMs[at] * weight;
      this.samplesByStack[stack] += counted[at];
      time += timesMs[at] * weight;
      samples += counted[at];
    }
    this.total += time;
    this.samples += samples;
    if (samples) this.squares += time ** 2 / samples;
    // Threads of a process are read at the same moments: at worst they all err together.
    const beside = selection.threads().filter((other) => other.process === thread.process).length;
    if (everySample) this.doubt.addThread(stacks, everyTime / everySample, beside);
  }

  /** As many samples as would tell shares as exactly if each stood for the same time. */
  get effectiveSamples() {
    return this.squares ? this.total ** 2 / this.squares : 0;
  }

  /** Return the standard errors of shares that were counted by key; see `Doubt`, and `standardError` for long runs. */
  errors(times, squares) {
    if (!this.doubt.tellsOrder) return times.map((time) => standardError(time / (this.total || 1), this.effectiveSamples));
    return squares.map((square) => Math.min(Math.sqrt(square + this.doubt.open) / (this.total || 1), 1));
  }

  byPhase(byStack = this.byStack) {
    const found = new Float64Array(this.run.phases.length);
    byStack.forEach((part, stack) => {
      found[this.run.stackPhase[stack]] += part;
    });
    return found;
  }

  /** Return the time by function: `own` with it at the leaf, `total` with it anywhere, once a stack; and the samples. */
  byFunction() {
    const { frameFunction } = this.run;
    return this.byKey(this.run.functionName.length, (frame) => frameFunction[frame]);
  }

  byLine() {
    return this.byKey(this.run.frameLine.length, (frame) => frame);
  }

  byKey(keyCount, keyOf) {
    const { stackParent, stackFrame } = this.run;
    const [own, total, ownSamples, totalSamples] = Array.from({ length: 4 }, () => new Float64Array(keyCount));
    const lastStack = new Int32Array(keyCount).fill(-1);
    for (let stack = 0; stack < this.byStack.length; stack += 1) {
      const time = this.byStack[stack];
      const samples = this.samplesByStack[stack];
      if (!time && !samples) continue;
      own[keyOf(stackFrame[stack])] += time;
      ownSamples[keyOf(stackFrame[stack])] += samples;
      for (let at = stack; at >= 0; at = stackParent[at]) {
        const key = keyOf(stackFrame[at]);
        if (lastStack[key] === stack) continue;
        lastStack[key] = stack;
        total[key] += time;
        totalSamples[key] += samples;
      }
    }
    const isSelected = (stack) => this.phase === null || this.run.stackPhase[stack] === this.phase;
    const squares = this.doubt.byKey(keyCount, keyOf, isSelected);
    const [ownErrors, totalErrors] = [this.errors(own, squares.own), this.errors(total, squares.total)];
    return { own, total, ownSamples, totalSamples, ownErrors, totalErrors };
  }

  /** Return the time of stacks that pass through a matching function. */
  matching(matches) {
    const { stackParent, stackFrame, frameFunction } = this.run;
    const passes = new Uint8Array(this.byStack.length);
    let found = 0;
    for (let stack = 0; stack < this.byStack.length; stack += 1) {
      const parent = stackParent[stack];
      passes[stack] = (parent >= 0 && passes[parent]) || matches[frameFunction[stackFrame[stack]]] ? 1 : 0;
      if (passes[stack]) found += this.byStack[stack];
    }
    return found;
  }
}
