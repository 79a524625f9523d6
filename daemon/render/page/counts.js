// Time and samples of a selection: by stack, then by phase, function and line. Shares are shares of time.

class Counts {
  constructor(run, selection) {
    Object.assign(this, { run, phase: selection.phase, total: 0, samples: 0, squares: 0 });
    this.byStack = new Float64Array(run.stackCount); // ms, weighted
    this.samplesByStack = new Float64Array(run.stackCount);
    this.variance = new ShareVariance(run);
    this.step = selection.isWholeTraining ? run.step : null; // seconds of an average step, by phase and line
    for (const thread of selection.threads()) this.addThread(thread, selection);
    // Imports are left out of the pictures; they count in every share.
    const imports = selection.showsImports ? 0 : this.byPhase()[run.importPhase];
    this.hiddenTime = imports < this.total ? imports : 0;
  }

  /** Say whether a stack is in the pictures. */
  shows(stack) { return this.byStack[stack] > 0 && !(this.hiddenTime && this.run.stackPhase[stack] === this.run.importPhase); }

  addThread(thread, selection) {
    const { stackPhase } = this.run;
    const [first, end] = selection.entriesOf(thread);
    const { timesMs, samples: counted } = selection.partOf(thread);
    const weight = this.run.weightOf(thread.process, selection.fromMs, selection.toMs);
    let [time, samples, everyTime, everySample] = [0, 0, 0, 0];
    const stacks = [];
    for (let at = first; at < end; at += 1) {
      const stack = thread.stacks[at];
      if (this.variance.isKnown && (timesMs[at] || counted[at])) stacks.push(stack);
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
    if (everySample) this.variance.addThread(stacks, everyTime / everySample, beside);
  }

  /** Return the standard errors of shares that were counted by key; by `ShareVariance`, or by their number in long runs. */
  errors(times, squares) {
    if (!this.variance.isKnown) {
      // As many samples as would be as exact if each stood for the same time.
      const samples = this.squares ? this.total ** 2 / this.squares : 0;
      return times.map((time) => standardError(time / (this.total || 1), samples));
    }
    return squares.map((square) => Math.min(Math.sqrt(square + this.variance.open) / (this.total || 1), 1));
  }

  byPhase(byStack = this.byStack) {
    const found = new Float64Array(this.run.phases.length);
    byStack.forEach((part, stack) => (found[this.run.stackPhase[stack]] += part));
    return found;
  }

  /** Return the time by function: `own` with it at the leaf, `total` with it anywhere, once a stack; samples; what is shown. */
  byFunction() { return this.byKey(this.run.functionName.length, (frame) => this.run.frameFunction[frame]); }
  byLine() { return this.byKey(this.run.frameLine.length, (frame) => frame); }

  byKey(keyCount, keyOf) {
    const { stackParent, stackFrame } = this.run;
    const [own, total, ownSamples, totalSamples] = Array.from({ length: 4 }, () => new Float64Array(keyCount));
    const lastStack = new Int32Array(keyCount).fill(-1);
    const isShown = new Uint8Array(keyCount);
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
        if (this.shows(stack)) isShown[key] = 1;
      }
    }
    const isSelected = (stack) => this.phase === null || this.run.stackPhase[stack] === this.phase;
    const squares = this.variance.byKey(keyCount, keyOf, isSelected);
    const [ownErrors, totalErrors] = [this.errors(own, squares.own), this.errors(total, squares.total)];
    return { own, total, ownSamples, totalSamples, ownErrors, totalErrors, isShown };
  }

  /** Return the time of stacks in the pictures that pass through a matching function. */
  matching(matches) {
    const { stackParent, stackFrame, frameFunction } = this.run;
    const passes = new Uint8Array(this.byStack.length);
    let found = 0;
    for (let stack = 0; stack < this.byStack.length; stack += 1) {
      const parent = stackParent[stack];
      passes[stack] = (parent >= 0 && passes[parent]) || matches[frameFunction[stackFrame[stack]]] ? 1 : 0;
      if (passes[stack] && this.shows(stack)) found += this.byStack[stack];
    }
    return found;
  }
}

/** Return the most that the standard error of a share can be where the order of stacks is not known (docs/decisions-measurements.md, 8). */
function standardError(share, samples) {
  if (samples <= 1) return 1;
  const bounded = Math.min(Math.max(share, 0.5 / samples), 1 - 0.5 / samples);
  return Math.sqrt((2 * bounded * (1 - bounded)) / samples);
}

/** Say whether the 95 % interval of a share is wider than the share itself: then it is a hint, no number. */
const isUncertain = (part, whole, error) => !whole || !part || 2 * 1.96 * error > part / whole;

/** The buckets in which the order of stacks can be seen: wider ones hold many samples each. */
const BUCKET_MS_IN_ORDER = 10;

/**
 * How sure shares are: the variance from each change of a thread from stack to stack (docs/decisions-measurements.md, 8).
 * A change is seen late by the distance to the next sample; the squares of these distances add up to a variance.
 */
class ShareVariance {
  constructor(run) {
    this.run = run;
    this.isKnown = run.bucketMs <= BUCKET_MS_IN_ORDER;
    this.changes = []; // [stack before, stack after, square of ms]
    this.open = 0; // at the end of each thread one change more may be under way
  }

  /** Take in the stacks that a thread went through, and the distance of its samples; `threads` may err together. */
  addThread(stacks, distanceMs, threads) {
    if (!this.isKnown || !stacks.length) return;
    const times = new Map();
    for (let at = 1; at < stacks.length; at += 1) {
      if (stacks[at] === stacks[at - 1]) continue;
      const pair = stacks[at - 1] * this.run.stackCount + stacks[at];
      times.set(pair, (times.get(pair) ?? 0) + 1);
    }
    const square = distanceMs ** 2 * threads;
    for (const [pair, count] of times) {
      const after = pair % this.run.stackCount;
      this.changes.push([(pair - after) / this.run.stackCount, after, count * square]);
    }
    this.open += square;
  }

  /** Return the open squares by key, of times with the key at the leaf and of those with it anywhere. */
  byKey(keyCount, keyOf, isSelected) {
    const { stackParent, stackFrame } = this.run;
    const [own, total] = [new Float64Array(keyCount), new Float64Array(keyCount)];
    const mark = new Int32Array(keyCount);
    const visit = (stack, take) => {
      for (let at = stack; at >= 0; at = stackParent[at]) take(keyOf(stackFrame[at]));
    };
    this.changes.forEach(([before, after, square], at) => {
      const [left, entered] = [isSelected(before) ? before : -1, isSelected(after) ? after : -1];
      const leaves = [left, entered].map((stack) => (stack < 0 ? -1 : keyOf(stackFrame[stack])));
      if (leaves[0] !== leaves[1]) leaves.forEach((key) => key >= 0 && (own[key] += square));
      // Marks of this change: seen before it, seen on both sides, and counted.
      const [gone, both, counted] = [3 * at + 1, 3 * at + 2, 3 * at + 3];
      const count = (key) => {
        mark[key] = counted;
        total[key] += square;
      };
      visit(left, (key) => (mark[key] = gone));
      visit(entered, (key) => {
        if (mark[key] === gone) mark[key] = both;
        else if (mark[key] !== both && mark[key] !== counted) count(key);
      });
      visit(left, (key) => mark[key] === gone && count(key));
    });
    return { own, total };
  }
}
