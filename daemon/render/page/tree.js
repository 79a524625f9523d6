// The call trees of a run. Their shape is built once for each way of looking (by function or line, from the root or from
// the leaves); a selection only fills it with time, so that nodes stay the same while the range moves.

class Tree extends CallTree {
  constructor(run, byLine, inverted) {
    super();
    this.run = run;
    this.byLine = byLine;
    this.parent = [-1]; // node 0 is the root: everything that is selected
    this.key = [-1];
    this.nodeOfStack = new Int32Array(run.stackCount).fill(-1);
    const child = this.grower();
    if (inverted) {
      for (const stack of new Set(run.threads.flatMap(({ stacks }) => [...new Set(stacks)]))) {
        let node = 0;
        for (let at = stack; at >= 0; at = run.stackParent[at]) node = child(node, at);
        this.nodeOfStack[stack] = node;
      }
    } else {
      run.stackParent.forEach((caller, stack) => (this.nodeOfStack[stack] = child(caller < 0 ? 0 : this.nodeOfStack[caller], stack)));
    }
    this.linkChildren();
  }

  functionOf(node) { return this.byLine ? this.run.frameFunction[this.key[node]] : this.key[node]; }

  /** Return the line of a node; 0 where it stands for a whole function. */
  lineOf(node) { return this.byLine ? this.run.frameLine[this.key[node]] : 0; }

  /** Return a function that finds the child of a node for the leaf of a stack, and makes it where there is none. */
  grower() {
    const known = new Map();
    return (node, stack) => {
      const frame = this.run.stackFrame[stack];
      const key = this.byLine ? frame : this.run.frameFunction[frame];
      const name = node * 2 ** 24 + key;
      let found = known.get(name);
      if (found === undefined) {
        found = this.parent.push(node) - 1;
        this.key.push(key);
        known.set(name, found);
      }
      return found;
    };
  }

  /** Fill the tree: `total` of time in and below each node, `own` in it alone, `samples`, its dominant `phase` or -1. */
  fill(counts) {
    const phaseCount = this.run.phases.length;
    const byPhase = new Float64Array(this.size * phaseCount);
    [this.own, this.total, this.samples] = Array.from({ length: 3 }, () => new Float64Array(this.size));
    counts.byStack.forEach((time, stack) => {
      if (!time) return;
      const node = this.nodeOfStack[stack];
      this.own[node] += time;
      this.samples[node] += counts.samplesByStack[stack];
      byPhase[node * phaseCount + this.run.stackPhase[stack]] += time;
    });
    // A child always comes after its parent, so one pass backwards sums the tree up.
    for (let node = this.size - 1; node >= 0; node -= 1) {
      this.total[node] += this.own[node];
      if (node === 0) break;
      const parent = this.parent[node];
      this.total[parent] += this.total[node];
      this.samples[parent] += this.samples[node];
      for (let phase = 0; phase < phaseCount; phase += 1) {
        byPhase[parent * phaseCount + phase] += byPhase[node * phaseCount + phase];
      }
    }
    this.phase = Int8Array.from(this.total, (total, node) => dominant(byPhase, node * phaseCount, phaseCount, total));
  }
}

/** Return the phase that nearly all time of a node belongs to; -1 where several share it. */
function dominant(byPhase, offset, phaseCount, total) {
  for (let phase = 0; phase < phaseCount; phase += 1) {
    if (total > 0 && byPhase[offset + phase] >= 0.9 * total) return phase;
  }
  return -1;
}
