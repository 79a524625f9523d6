// The legend: the phases with their letters, colors and shares of the selection. A press keeps one phase alone.
// It reports the phase through `onphase`, null for all of them.

class Legend {
  constructor(node, run, onphase) {
    this.node = node;
    this.run = run;
    this.onphase = onphase;
    // The order is that of the whole run, so that nothing jumps while a range is dragged.
    this.usual = new Counts(run, new Selection(run)).byPhase();
    this.everSeen = phasesSeen(run);
    this.order = [...run.phases.keys()].sort((a, b) => this.usual[b] - this.usual[a] || a - b);
  }

  show(selection, counts) {
    const whole = selection.phase === null ? counts : new Counts(this.run, withAllPhases(selection));
    const times = whole.byPhase();
    const samples = whole.byPhase(whole.samplesByStack);
    const shown = this.order.filter((phase) => times[phase] > 0 || this.usual[phase] > 0 || phase === selection.phase);
    const entries = shown.map((phase) => this.entry(phase, percent(times[phase], whole.total), samples[phase], phase === selection.phase));
    this.node.replaceChildren(...entries);
  }

  entry(phase, share, samples, isOnly) {
    const { name, letter, color } = this.run.phases[phase];
    const swatch = element("i", { class: "swatch" }, letter);
    swatch.style.background = color;
    swatch.style.color = inkOn(parseColor(color));
    return element(
      "button",
      {
        type: "button",
        "aria-pressed": String(isOnly),
        title: `only ${name}: ${counted(samples, "sample")}`,
        onclick: () => this.onphase(isOnly ? null : phase),
      },
      swatch,
      name,
      element("b", {}, share),
    );
  }
}

/** Return the phases that any thread has spent time in. */
function phasesSeen(run) {
  const isSeen = new Uint8Array(run.stackCount);
  for (const { stacks, timesMs } of run.threads) {
    for (let at = 0; at < stacks.length; at += 1) if (timesMs[at] > 0) isSeen[stacks[at]] = 1;
  }
  const phases = new Set();
  isSeen.forEach((seen, stack) => seen && phases.add(run.stackPhase[stack]));
  return phases;
}

/** Return a selection that differs in its phase alone: the shares of phases are those of all of them. */
function withAllPhases(selection) {
  return Object.assign(new Selection(selection.run), selection, { phase: null });
}
