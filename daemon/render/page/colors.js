// Colors of canvases: the theme from the style sheet, a color a phase or module, and ink that can be read on it.

const MODULE_COLORS = ["#0072B2", "#009E73", "#CC79A7", "#E69F00", "#882255", "#44AA99", "#999933", "#AA4499", "#D55E00"];

/** Return the colors and fonts that hold now: dark or light, screen or paper. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    paper: parseColor(value("paper")),
    page: value("page"),
    ink: value("ink"),
    dim: value("dim"),
    faint: value("faint"),
    line: value("line"),
    accent: value("accent"),
    mixed: parseColor(value("mixed")),
    font: getComputedStyle(document.body).fontFamily,
  };
}

function parseColor(hex) {
  const digits = hex.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

function mix(color, other, share) {
  return color.map((part, at) => Math.round(part * share + other[at] * (1 - share)));
}

function css(color) {
  return `rgb(${color.join(" ")})`;
}

/** Return the ink, dark or light, that stands out more from a color. */
function inkOn(color) {
  const [red, green, blue] = color.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#14171a" : "#ffffff";
}

/** What a frame is painted with: by its phase or its module; the user's own code full, libraries paler. */
class FrameColors {
  constructor(run) {
    this.run = run;
    this.phaseColors = run.phases.map((phase) => parseColor(phase.color));
    this.moduleOfFile = run.files.map((file) => (file.library ? file.module.split(/[/.]/)[0] : ""));
    const modules = [...new Set(this.moduleOfFile)].filter((module) => module !== "");
    this.moduleColors = new Map(modules.map((module, at) => [module, parseColor(MODULE_COLORS[at % MODULE_COLORS.length])]));
  }

  moduleOf(functionId) {
    return this.moduleOfFile[this.run.functionFile[functionId]];
  }

  /** Return the fill of a node of a tree, as [red, green, blue]. */
  ofNode(tree, node, coloring, colors) {
    const functionId = tree.functionOf(node);
    const base = coloring === "phase" ? this.phaseColors[tree.phase[node]] : this.moduleColors.get(this.moduleOf(functionId));
    const full = base ?? (coloring === "phase" ? colors.mixed : parseColor(colors.accent));
    return this.run.fileOf(functionId).library ? mix(full, colors.paper, 0.55) : full;
  }
}
