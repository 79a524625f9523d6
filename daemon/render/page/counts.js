// Counting: samples of a selection by stack, then by phase, function, line and node of a tree.

class Counts {
  constructor(run, selection) {
    this.run = run;
    this.byStack = new Float64Array(run.stackCount);
    this.total = 0;
    for (const thread of selection.threads()) this.addThread(thread, selection);
  }

  addThread(thread, selection) {
    const { stackPhase } = this.run;
    const [first, end] = selection.entriesOf(thread);
    for (let at = first; at < end; at += 1) {
      const stack = thread.stacks[at];
      if (selection.phase !== null && stackPhase[stack] !== selection.phase) continue;
      this.byStack[stack] += thread.samples[at];
      this.total += thread.samples[at];
    }
  }

  byPhase() {
    const found = new Float64Array(this.run.phases.length);
    this.byStack.forEach((samples, stack) => {
      found[this.run.stackPhase[stack]] += samples;
    });
    return found;
  }

  /** Return the samples by function: `own` with it at the leaf, `total` with it anywhere, once a stack. */
  byFunction() {
    const { frameFunction } = this.run;
    return this.byKey(this.run.functionName.length, (frame) => frameFunction[frame]);
  }

  byLine() {
    return this.byKey(this.run.frameLine.length, (frame) => frame);
  }

  byKey(keyCount, keyOf) {
    const { stackParent, stackFrame } = this.run;
    const own = new Float64Array(keyCount);
    const total = new Float64Array(keyCount);
    const lastStack = new Int32Array(keyCount).fill(-1);
    for (let stack = 0; stack < this.byStack.length; stack += 1) {
      const samples = this.byStack[stack];
      if (!samples) continue;
      own[keyOf(stackFrame[stack])] += samples;
      for (let at = stack; at >= 0; at = stackParent[at]) {
        const key = keyOf(stackFrame[at]);
        if (lastStack[key] !== stack) total[key] += samples;
        lastStack[key] = stack;
      }
    }
    return { own, total };
  }

  /** Return the samples of stacks that pass through a matching function. */
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
