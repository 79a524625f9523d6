// What canvases share: their size, text that fits, colors of the theme, of phases and of modules.

/** A canvas as wide as its place on the page and as sharp as the screen, redrawn at most once a frame. */
class Canvas {
  constructor(node, draw) {
    Object.assign(this, { node, draw, context: node.getContext("2d"), isDue: false });
    new ResizeObserver(() => this.redraw()).observe(node.parentElement);
  }

  get width() { return this.node.parentElement.clientWidth; }

  /** Draw before the next picture. */
  redraw() {
    if (!this.isDue) requestAnimationFrame(() => this.redrawNow());
    this.isDue = true;
  }

  redrawNow() {
    this.isDue = false;
    if (this.width > 0) this.draw();
  }

  /** Clear the canvas to a height, and set it up so that a unit is a pixel of the page. */
  begin(height) {
    const scale = window.devicePixelRatio || 1;
    Object.assign(this.node.style, { width: `${this.width}px`, height: `${height}px` });
    Object.assign(this.node, { width: Math.round(this.width * scale), height: Math.round(height * scale) });
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

/** Write a title in bold and a second line below it, around a middle, each cut to a width. */
function fillTwoLines(context, title, subtitle, x, middle, colors, width = Infinity) {
  Object.assign(context, { font: `600 12px ${colors.font}`, fillStyle: colors.ink });
  context.fillText(fitText(context, title, width), x, middle - 7);
  Object.assign(context, { font: `11px ${colors.font}`, fillStyle: colors.dim });
  context.fillText(fitText(context, subtitle, width), x, middle + 8);
}

/** Write a title in bold and a text behind it; with `textAlign` right the title ends at `x`. */
function fillOneLine(context, title, subtitle, x, middle, colors) {
  Object.assign(context, { font: `600 12px ${colors.font}`, fillStyle: colors.ink });
  context.fillText(title, x, middle);
  const behind = x + context.measureText(`${title}  `).width;
  Object.assign(context, { font: `11px ${colors.font}`, fillStyle: colors.dim });
  context.fillText(subtitle, behind, middle);
}

const MODULE_COLORS = ["#0072B2", "#009E73", "#CC79A7", "#E69F00", "#882255", "#44AA99", "#999933", "#AA4499", "#D55E00"];

/** Return the colors and fonts that hold now: dark or light, screen or paper. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const [page, ink, dim, faint, accent] = ["page", "ink", "dim", "faint", "accent"].map(value);
  const [paper, mixed] = ["paper", "mixed"].map((name) => parseColor(value(name)));
  return { page, ink, dim, faint, accent, paper, mixed, font: getComputedStyle(document.body).fontFamily };
}

function parseColor(hex) {
  const digits = hex.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

const mix = (color, other, share) => color.map((part, at) => Math.round(part * share + other[at] * (1 - share)));

/** Return the ink, dark or light, that stands out more from a color. */
function inkOn(color) {
  const [red, green, blue] = color.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#14171a" : "#ffffff";
}

/** The colors of frames, by phase or by module; the user's own code full, libraries paler. */
class FrameColors {
  constructor(run) {
    this.run = run;
    this.phaseColors = run.phases.map((phase) => parseColor(phase.color));
    this.moduleOfFile = run.files.map((file) => (file.library ? file.module.split(/[/.]/)[0] : ""));
    const modules = [...new Set(this.moduleOfFile)].filter((module) => module !== "");
    this.moduleColors = new Map(modules.map((module, at) => [module, parseColor(MODULE_COLORS[at % MODULE_COLORS.length])]));
  }

  /** Return the fill of a node of a tree, as [red, green, blue]. */
  ofNode(tree, node, coloring, colors) {
    const functionId = tree.functionOf(node);
    const ofModule = () => this.moduleColors.get(this.moduleOfFile[this.run.functionFile[functionId]]) ?? parseColor(colors.accent);
    const full = coloring === "phase" ? (this.phaseColors[tree.phase[node]] ?? colors.mixed) : ofModule();
    return this.run.fileOf(functionId).library ? mix(full, colors.paper, 0.55) : full;
  }
}
