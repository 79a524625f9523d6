// The tooltip: a few lines beside the pointer, kept inside the window.

class Tooltip {
  constructor(node) {
    this.node = node;
  }

  show(event, lines) {
    this.node.replaceChildren(...lines);
    this.node.hidden = false;
    const { offsetWidth, offsetHeight, style } = this.node;
    const isLow = event.clientY + offsetHeight + 24 > window.innerHeight;
    style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - offsetWidth - 8))}px`;
    style.top = `${isLow ? event.clientY - offsetHeight - 10 : event.clientY + 16}px`;
  }

  hide() {
    this.node.hidden = true;
  }
}
