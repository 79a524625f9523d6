// Opening a page: its data are decoded and handed over, and what goes wrong is said on the page.

const NUMBERS = { Uint8Array, Uint16Array, Uint32Array, Int32Array, Float64Array };

/** Decode what stands in the page: base64 of deflated bytes, so that no byte of a run is ever markup. */
async function decode(packed) {
  const letters = atob(packed);
  const deflated = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) deflated[at] = letters.charCodeAt(at);
  const inflated = new Response(deflated).body.pipeThrough(new DecompressionStream("deflate"));
  return unpack(await new Response(inflated).arrayBuffer());
}

/** Return the data of some bytes: their length, JSON, and the columns of numbers that it names, which are used in place. */
function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  const behind = Math.ceil((4 + length) / 8) * 8;
  return JSON.parse(head, (_, value) => (value?.numbers ? new NUMBERS[value.numbers](buffer, behind + value.at, value.count) : value));
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
