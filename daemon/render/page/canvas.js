// A canvas as wide as its place on the page and as sharp as the screen, redrawn at most once a frame.

class Canvas {
  constructor(node, draw) {
    this.node = node;
    this.context = node.getContext("2d");
    this.draw = draw;
    this.isDue = false;
    new ResizeObserver(() => this.redraw()).observe(node.parentElement);
  }

  get width() {
    return this.node.parentElement.clientWidth;
  }

  /** Draw before the next picture. */
  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => this.redrawNow());
  }

  redrawNow() {
    this.isDue = false;
    if (this.width > 0) this.draw();
  }

  /** Clear the canvas to a height, and set it up so that a unit is a pixel of the page. */
  begin(height) {
    const scale = window.devicePixelRatio || 1;
    this.node.width = Math.round(this.width * scale);
    this.node.height = Math.round(height * scale);
    this.node.style.width = `${this.width}px`;
    this.node.style.height = `${height}px`;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    return this.context;
  }
}

/** Return text cut to a width in pixels, with an ellipsis; empty where nothing fits. */
function fitText(context, text, width) {
  if (width < 14) return "";
  const whole = context.measureText(text).width;
  if (whole <= width) return text;
  let room = Math.floor((text.length * width) / whole);
  while (room > 1 && context.measureText(`${text.slice(0, room)}…`).width > width) room -= 1;
  return room < 2 ? "" : `${text.slice(0, room)}…`;
}
