// Opening a page: its data are decoded and handed over, and what goes wrong is said on the page.

/** Decode what stands in the page: base64 of deflated JSON, so that no byte of a run is ever markup. */
async function decode(packed) {
  const deflated = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

/** Make a page of the data; it stands in `window.profd` then. */
async function openPacked(make) {
  try {
    if (!("DecompressionStream" in window)) throw new Error("this browser is too old: it needs DecompressionStream (2023)");
    window.profd = make(await decode(byId("run").textContent));
    document.body.classList.add("ready");
  } catch (error) {
    byId("failure").textContent = `The charts cannot be shown: ${error.message}`;
    byId("failure").hidden = false;
    throw error;
  }
}
