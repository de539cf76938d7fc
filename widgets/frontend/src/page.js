// Reading what a report carries: the header as JSON, the block of columns as base64, perhaps packed with gzip.

/**
 * @import { Header } from "./header.js"
 * @import { Block } from "./messages.js"
 */

/** @param {string} text */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {string | undefined} packing
 */
export async function unpacked(bytes, packing) {
  if (packing !== "gzip") return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * The header and the block that the page's script elements hold.
 *
 * @param {Document} page
 * @returns {Promise<{ header: Header, block: Block }>}
 */
export async function readPage(page) {
  /** @param {string} id */
  const script = (id) => /** @type {HTMLElement} */ (page.getElementById(id));
  /** @type {Header} */
  const header = JSON.parse(script("timeline-header").textContent);
  const source = script("timeline-block");
  return { header, block: await unpacked(fromBase64(source.textContent), source.dataset.packing) };
}
