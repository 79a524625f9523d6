// The call trees of a run: merged, in order of time, and around one function.

/** A tree whose keys are frames, or functions where it is not `byLine`. */
class FrameTree extends CallTree {
  constructor(run, byLine) {
    super();
    Object.assign(this, { run, byLine });
  }

  keyOf(stack) {
    const frame = this.run.stackFrame[stack];
    return this.byLine ? frame : this.run.frameFunction[frame];
  }

  functionOf(node) { return this.byLine ? this.run.frameFunction[this.key[node]] : this.key[node]; }

  /** Return the line of a node; 0 where it stands for a whole function. */
  lineOf(node) { return this.byLine ? this.run.frameLine[this.key[node]] : 0; }

  /** Return what the root is called. */
  title() { return `all · ${counted(this.samples[0], "sample")}`; }

  /** Return what a node takes, in two texts. */
  amount(node) { return [percent(this.total[node], this.whole), ` ${counted(this.samples[node], "sample")}`]; }
}

/**
 * All calls, merged, from the root or from the leaves. The shape is built once for each way of looking; a selection
 * only fills it with time, so that nodes stay the same while the range moves.
 */
class Tree extends FrameTree {
  constructor(run, byLine, inverted) {
    super(run, byLine);
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

  /** Return a function that finds the child of a node for the leaf of a stack, and makes it where there is none. */
  grower() {
    const known = new Map();
    return (node, stack) => {
      const key = this.keyOf(stack);
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
    this.whole = counts.total;
    const byPhase = new Float64Array(this.size * phaseCount);
    [this.own, this.total, this.samples] = Array.from({ length: 3 }, () => new Float64Array(this.size));
    counts.byStack.forEach((time, stack) => {
      if (!counts.shows(stack)) return;
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

const MOST_SLOTS = 600; // about as many as a graph has columns

/** What one thread did in order of time: each slot of time shows, from the root on, the frame that took most of it. */
class TimeTree extends FrameTree {
  constructor(run, byLine, counts, selection) {
    super(run, byLine);
    const thread = selection.threads().find((each) => spent(each, selection) > 0);
    this.name = thread ? `${run.processTitle(thread.process)} · ${thread.name}` : "no thread";
    this.count = Math.max(1, Math.min(MOST_SLOTS, Math.round((selection.toMs - selection.fromMs) / run.bucketMs)));
    this.slotMs = (selection.toMs - selection.fromMs) / this.count;
    this.fromMs = selection.fromMs;
    Object.assign(this, { parent: [-1], key: [-1], starts: [0], ends: [this.count], phase: [-1] });
    let open = [];
    const slots = thread ? slotsOf(run, thread, counts, selection, this.count) : [];
    slots.forEach((times, slot) => (open = this.add(mainPath(run, times), slot, open)));
    this.total = this.starts.map((start, node) => (thread ? this.ends[node] - start : 0));
    this.linkChildren();
  }

  /** Add a slot with a path of stacks, where the nodes of the slot before go on as long as they are the same. */
  add(path, slot, before) {
    const phase = path.length ? this.run.stackPhase[path[path.length - 1]] : -1;
    const nodes = [];
    for (const [depth, stack] of path.entries()) {
      const key = this.keyOf(stack);
      const goesOn = nodes.every((node, at) => node === before[at]) && this.key[before[depth]] === key;
      const node = goesOn ? before[depth] : this.parent.push(nodes[depth - 1] ?? 0) - 1;
      if (!goesOn) [this.key[node], this.starts[node], this.phase[node]] = [key, slot, phase];
      else if (this.phase[node] !== phase) this.phase[node] = -1;
      this.ends[node] = slot + 1;
      nodes.push(node);
    }
    return nodes;
  }

  /** Return the children in order of time. */
  childrenOf(node) { return super.childrenOf(node).sort((a, b) => a - b); }

  word(node) { return this.starts[node].toString(36); }

  title() { return this.name; }

  amount(node) {
    const [from, to] = [this.starts[node], this.ends[node]].map((slot) => this.fromMs + slot * this.slotMs);
    return [stepTime((to - from) / 1000), ` ${elapsed(from, 2)} – ${elapsed(to, 2)}`];
  }
}

/** Return the time of a thread in a selection, in ms. */
function spent(thread, selection) {
  const [first, end] = selection.entriesOf(thread);
  return selection.partOf(thread).timesMs.subarray(first, end).reduce((sum, time) => sum + time, 0);
}

/** Return what a thread did in slots of a selection, each as a map from stacks to time. */
function slotsOf(run, thread, counts, selection, count) {
  const slots = Array.from({ length: count }, () => new Map());
  const [first, end] = selection.entriesOf(thread);
  const { timesMs } = selection.partOf(thread);
  const scale = (count * run.bucketMs) / (selection.toMs - selection.fromMs);
  const firstBucket = selection.fromMs / run.bucketMs;
  for (let at = first; at < end; at += 1) {
    const stack = thread.stacks[at];
    if (!timesMs[at] || !counts.shows(stack)) continue;
    const from = Math.max((thread.buckets[at] - firstBucket) * scale, 0);
    const to = Math.min(from + thread.spans[at] * scale, count);
    for (let slot = Math.floor(from); slot < to; slot += 1) {
      const inside = (timesMs[at] * (Math.min(to, slot + 1) - Math.max(from, slot))) / (to - from);
      slots[slot].set(stack, (slots[slot].get(stack) ?? 0) + inside);
    }
  }
  return slots;
}

/** Return the way from the root along the callees that took most of the time of some stacks. */
function mainPath(run, times) {
  const sums = new Map();
  for (const [stack, time] of times) {
    for (let at = stack; at >= 0; at = run.stackParent[at]) sums.set(at, (sums.get(at) ?? 0) + time);
  }
  const best = new Map(); // caller → its callee with the most time
  for (const [stack, sum] of sums) {
    const caller = run.stackParent[stack];
    if (!best.has(caller) || sum > sums.get(best.get(caller))) best.set(caller, stack);
  }
  const path = [];
  let next = best.get(-1);
  while (next !== undefined && sums.get(next) >= (times.get(path[path.length - 1]) ?? 0)) {
    path.push(next);
    next = best.get(next);
  }
  return path;
}

/** One function with all that called it above, and all that it called below; of a recursion the outermost call. */
class SandwichTree extends FrameTree {
  constructor(run, byLine, counts, functionId) {
    super(run, byLine);
    const columns = ["parent", "key", "growsUp", "total", "own", "samples", "byPhase"];
    Object.assign(this, { of: functionId, whole: counts.total, known: new Map(), ...Object.fromEntries(columns.map((name) => [name, []])) });
    this.child(-1, -1, false);
    for (let stack = 0; stack < run.stackCount; stack += 1) if (counts.shows(stack)) this.add(stack, counts);
    this.phase = this.byPhase.map((times, node) => dominant(times, 0, times.length, this.total[node]));
    this.linkChildren();
  }

  add(stack, counts) {
    const { run } = this;
    const path = [];
    for (let at = stack; at >= 0; at = run.stackParent[at]) path.push(at);
    const center = path.findLastIndex((at) => run.frameFunction[run.stackFrame[at]] === this.of);
    if (center < 0) return;
    const take = (node) => {
      this.total[node] += counts.byStack[stack];
      this.samples[node] += counts.samplesByStack[stack];
      this.byPhase[node][run.stackPhase[stack]] += counts.byStack[stack];
      return node;
    };
    take(0);
    path.slice(center + 1).reduce((node, at) => take(this.child(node, this.keyOf(at), true)), 0);
    const leaf = path.slice(0, center).reduceRight((node, at) => take(this.child(node, this.keyOf(at), false)), 0);
    this.own[leaf] += counts.byStack[stack];
  }

  /** Return the child of a node with a key, a caller or a callee; made where there is none. */
  child(node, key, isCaller) {
    const name = `${node} ${key} ${isCaller}`;
    if (!this.known.has(name)) {
      this.known.set(name, this.parent.push(node) - 1);
      this.key.push(key);
      this.growsUp.push(isCaller);
      for (const column of [this.total, this.own, this.samples]) column.push(0);
      this.byPhase.push(new Float64Array(this.run.phases.length));
    }
    return this.known.get(name);
  }

  functionOf(node) { return node ? super.functionOf(node) : this.of; }

  word(node) { return (2 * this.key[node] + Number(this.growsUp[node])).toString(36); }

  title() { return `${this.run.functionName[this.of]} · ${percent(this.total[0], this.whole)}`; }
}
