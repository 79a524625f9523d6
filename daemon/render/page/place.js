// The place in a flame graph: which frame is selected and which one is zoomed, as a word for the address.
// A frame is named by the keys of all frames from the root to it, so a link means the same in every copy of a page.

/** Return the place of a graph as `1.4.2a-ZOOM-SELECTED`, both as depths on that path; empty at the root. */
function placeOf({ tree, selected, zoomed }) {
  const path = tree.pathTo(selected).includes(zoomed) ? tree.pathTo(selected) : tree.pathTo(zoomed);
  if (path.length === 1) return "";
  const keys = path.slice(1).map((node) => tree.key[node].toString(36));
  return `${keys.join(".")}-${path.indexOf(zoomed)}-${path.indexOf(selected)}`;
}

/** Return the zoomed and the selected node that a word means, as far as this tree has its frames. */
function readPlace(tree, word) {
  const [, keys, zoom, depth] = /^([\da-z.]+)-(\d+)-(\d+)$/.exec(word) ?? [null, "", 0, 0];
  const path = [0];
  for (const key of keys.split(".").filter(Boolean)) {
    const next = tree.childrenOf(path[path.length - 1]).find((child) => tree.key[child].toString(36) === key);
    if (next === undefined) break;
    path.push(next);
  }
  return { zoomed: path[Math.min(zoom, path.length - 1)], selected: path[Math.min(depth, path.length - 1)] };
}
