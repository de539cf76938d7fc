// Reading what a report carries: the header as JSON, the block of columns as base64, perhaps packed with gzip.

export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export async function unpacked(bytes, packing) {
  if (packing !== "gzip") return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The header and the block that the page's script elements hold. */
export async function readPage(page) {
  const header = JSON.parse(page.getElementById("timeline-header").textContent);
  const source = page.getElementById("timeline-block");
  return { header, block: await unpacked(fromBase64(source.textContent), source.dataset.packing) };
}
