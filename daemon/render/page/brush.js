// The brush: selects a range of the timeline by mouse, touch or keyboard.
// It reports ranges through `onrange(fromMs, toMs)`, with NaN for the whole run.

const CLICK = 3; // pixels that a hand moves without meaning to

class Brush {
  constructor(node, timeline, onrange) {
    this.node = node;
    this.timeline = timeline;
    this.onrange = onrange;
    node.addEventListener("pointerdown", (event) => this.begin(event));
    node.addEventListener("pointermove", (event) => this.drag(event));
    node.addEventListener("pointerup", (event) => this.end(event));
    node.addEventListener("pointercancel", (event) => this.end(event));
    node.addEventListener("dblclick", () => onrange(NaN, NaN));
    node.addEventListener("keydown", (event) => this.onKey(event));
  }

  xOf(event) {
    return event.clientX - this.node.getBoundingClientRect().left;
  }

  begin(event) {
    if (event.button !== 0) return;
    this.anchorX = this.xOf(event);
    this.node.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (this.anchorX === undefined || Math.abs(this.xOf(event) - this.anchorX) < CLICK) return;
    this.onrange(this.timeline.toMs(this.anchorX), this.timeline.toMs(this.xOf(event)));
  }

  end(event) {
    this.drag(event);
    this.anchorX = undefined;
  }

  onKey(event) {
    const { run, selection } = this.timeline;
    const { fromMs, toMs, isWholeRun } = selection;
    const length = isWholeRun ? run.durationMs / 10 : toMs - fromMs;
    const step = Math.max(length / 4, run.slotMs) * (event.key === "ArrowLeft" ? -1 : 1);
    if (event.key === "Escape" || event.key === "Backspace") this.onrange(NaN, NaN);
    else if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    else if (isWholeRun) this.onrange(0, length);
    else if (event.shiftKey) this.onrange(fromMs, Math.max(toMs + step, fromMs + run.slotMs));
    else this.move(fromMs + step, length);
    event.preventDefault();
  }

  move(fromMs, length) {
    const from = Math.max(0, Math.min(fromMs, this.timeline.run.durationMs - length));
    this.onrange(from, from + length);
  }
}
