// Reading what a report carries: the header as JSON, the block of columns as base64, perhaps packed with gzip.

/**
 * @import { Header } from "./header.js"
 * @import { Answers, Ask, Block } from "./messages.js"
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
 * A header and a block that the page's script elements hold.
 *
 * @template H
 * @param {Document} page
 * @param {"timeline" | "details"} name
 * @returns {Promise<{ header: H, block: Block }>}
 */
async function read(page, name) {
  /** @param {string} part */
  const script = (part) => /** @type {HTMLElement} */ (page.getElementById(`${name}-${part}`));
  /** @type {H} */
  const header = JSON.parse(script("header").textContent);
  const source = script("block");
  return { header, block: await unpacked(fromBase64(source.textContent), source.dataset.packing) };
}

/**
 * What the timeline of a page draws.
 *
 * @param {Document} page
 * @returns {Promise<{ header: Header, block: Block }>}
 */
export const readPage = (page) => read(page, "timeline");

/**
 * Answers what the second bundle asks, as far as the page holds it (report.py).
 *
 * @param {Document} page
 * @returns {Ask}
 */
export function answersOf(page) {
  /** @type {Promise<{ header: Record<string, Answers[keyof Answers]>, block: Block }> | undefined} */
  let reading;
  return async (question) => {
    const { header, block } = await (reading ??= read(page, "details"));
    const { type, group, by } = /** @type {{ type: string, group?: number, by?: string }} */ (question);
    const found = [type, `${type}/${group}/${by}`, `${type}/${group}/range`].find((key) => header[key]);
    if (!found) throw new Error("this page does not hold it");
    return { header: /** @type {Answers[typeof question.type]} */ (header[found]), block };
  };
}
